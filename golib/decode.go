package redox

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"

	"github.com/redox-loader/redox/golib/internal/fault"
)

// decode reads an options object strictly: an unknown name, one that is given twice, or a value of the wrong type names
// itself.
func decode(options []byte, into any) error {
	if len(bytes.TrimSpace(options)) == 0 {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(options))
	var object json.RawMessage
	if err := d.Decode(&object); err != nil {
		return fault.New(fault.Invalid, "options are not a JSON object: %v", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return fault.New(fault.Invalid, "options: more than one JSON object")
	}
	if err := checkNames(object, reflect.TypeOf(into).Elem()); err != nil {
		return err
	}
	err := json.Unmarshal(object, into)
	if err == nil {
		return nil
	}
	var mistyped *json.UnmarshalTypeError
	if errors.As(err, &mistyped) && mistyped.Field != "" {
		option := mistyped.Field[strings.LastIndex(mistyped.Field, ".")+1:] // without the struct that it is embedded in
		return fault.New(fault.Invalid, "%s: expected %s, got a %s", option, mistyped.Type, mistyped.Value)
	}
	var wrong *fault.Error
	if errors.As(err, &wrong) {
		return wrong
	}
	return fault.New(fault.Invalid, "options are not a JSON object: %v", err)
}

// checkNames refuses what encoding/json lets pass: names in another case, and names given twice, of which the last would
// count. The object is JSON.
func checkNames(object []byte, options reflect.Type) error {
	d := json.NewDecoder(bytes.NewReader(object))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil // Unmarshal says what it is instead
	}
	known, seen := map[string]bool{}, map[string]bool{}
	addNames(known, options)
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return err
		}
		name, _ := t.(string)
		switch {
		case !known[name]:
			return fault.New(fault.Invalid, "unknown option %q", name)
		case seen[name]:
			return fault.New(fault.Invalid, "%s: the option is given twice", name)
		}
		seen[name] = true
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return err
		}
	}
	return nil
}

// addNames adds the names of a struct's options, and of the structs that are embedded in it.
func addNames(names map[string]bool, options reflect.Type) {
	for i := range options.NumField() {
		f := options.Field(i)
		if f.Anonymous {
			addNames(names, f.Type)
		} else {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			names[name] = true
		}
	}
}
