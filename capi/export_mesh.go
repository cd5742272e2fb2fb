package main

/*
#include "redox.h"
*/
import "C"

import redox "github.com/redox-loader/redox/golib"

var meshes = newTable[*redox.Mesh](7)

//export goRedoxMeshNew
func goRedoxMeshNew(ds C.redox_dataset, optionsJSON *C.char, out *C.redox_mesh) C.redox_status {
	return with("redox_mesh_new", datasets, uint64(ds), func(d *redox.Dataset) error {
		if err := result(out, "out"); err != nil {
			return err
		}
		var refs references
		defer refs.done()
		m, err := d.NewMesh(options(optionsJSON), refs.resolver())
		if err != nil {
			return err
		}
		return opened(meshes, m, out, (*redox.Mesh).Close)
	})
}

//export goRedoxMeshCard
func goRedoxMeshCard(h C.redox_mesh, buf *C.char, capacity C.size_t, need *C.size_t) C.redox_status {
	return with("redox_mesh_card", meshes, uint64(h), func(m *redox.Mesh) error {
		card, err := m.CardJSON()
		if err != nil {
			return err
		}
		return give(card, buf, capacity, need)
	})
}

//export goRedoxMeshMeet
func goRedoxMeshMeet(h C.redox_mesh, cardsJSON *C.char, ms C.int64_t) C.redox_status {
	return with("redox_mesh_meet", meshes, uint64(h), func(m *redox.Mesh) error {
		return m.Meet(options(cardsJSON), timeout(ms))
	})
}

//export goRedoxMeshClose
func goRedoxMeshClose(h C.redox_mesh) C.redox_status {
	return call("redox_mesh_close", func() error {
		m, ok := meshes.take(uint64(h), nil)
		if !ok {
			return stale(uint64(h))
		}
		m.Close()
		return nil
	})
}
