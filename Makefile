# Everything that people and CI run; `make` lists it. Nothing is installed outside of this folder, except by
# `make install`.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV ?= .venv
PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
FUZZTIME ?= 10s

export PATH := $(CURDIR)/$(VENV)/bin:$(PATH):/usr/local/go/bin

VERSION = $(shell sed -n 's/.*version = "\(.*\)"/\1/p' golib/version.go)
PIP = $(VENV)/bin/python -m pip --disable-pip-version-check
LIBRARY := python/redox/libredox.so.0
# The virtual environment's Python, once there is one: it has Go and zig where the machine has neither.
BUILD = $(shell command -v $(VENV)/bin/python || echo $(PYTHON)) capi/build.py
GO_FILES = $(shell git ls-files '*.go' 2>/dev/null || find capi golib -name '*.go')
LOG := build/log

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

# ---- the two commands of the README -----------------------------------------------------------------------------

.PHONY: demo
demo: $(VENV)/.demo build ## pack real images, train on them with torch, compare with files
	$(VENV)/bin/redox demo

.PHONY: demo-cluster
demo-cluster: $(VENV)/.dev build ## three nodes exchange samples; one is killed on the way
	$(VENV)/bin/redox demo --cluster

.PHONY: test
test: check test-go test-c test-python ## everything that must hold: formatting, Go with -race, C with ASan, Python
	@echo "---- make test: all passed"
	@echo "go:     $$(grep -c '^ok' $(LOG)/go) packages, with the race detector"
	@echo "c:      $$(tail -n 1 $(LOG)/c)"
	@echo "python: $$(tail -n 1 $(LOG)/python)"

# ---- parts of it ------------------------------------------------------------------------------------------------

.PHONY: check
check: $(VENV)/.dev
	@unformatted=$$(gofmt -l $(GO_FILES)); test -z "$$unformatted" || { echo "run make fmt: $$unformatted"; exit 1; }
	go vet ./...

.PHONY: test-go race
race: test-go
test-go: $(VENV)/.dev | $(LOG) ## (also: race) Go tests and fuzz seeds under the race detector
	go test -race -timeout 10m ./... 2>&1 | tee $(LOG)/go
	cd benchmarks/harness/slowfs && go vet . && go test . # a module of its own: only benchmarks need FUSE

.PHONY: test-c asan
asan: test-c
test-c: $(VENV)/.dev | $(LOG) ## (also: asan) C and C++ programs against the library, all under AddressSanitizer
	$(BUILD) --asan --out build/asan/libredox.so.0
	$(VENV)/bin/python tests/c/exports.py build/asan/libredox.so.0
	tests/c/run.sh build/asan 2>&1 | tee $(LOG)/c

.PHONY: test-python
test-python: $(VENV)/.dev build | $(LOG) ## the Python suite
	$(VENV)/bin/python -m pytest $(PYTEST) 2>&1 | tee $(LOG)/python

.PHONY: soak
soak: $(VENV)/.dev build ## start methods x workers x what the parent did: 300 runs with deadlines (SOAK="--runs 30")
	$(VENV)/bin/python tests/python/soak.py $(SOAK)

.PHONY: fuzz
fuzz: $(VENV)/.dev ## every fuzz target for FUZZTIME (10s)
	@grep -rlE '^func Fuzz' --include='*_test.go' golib capi | xargs -r -n 1 dirname | sort -u | while read -r folder; do \
	  sed -nE 's/^func (Fuzz[A-Za-z0-9_]*)\(.*/\1/p' "$$folder"/*_test.go | while read -r target; do \
	    echo "$$folder $$target"; go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "./$$folder"; \
	  done; \
	done

.PHONY: golden
golden: $(VENV)/.dev ## write the golden files anew; look at the difference before you commit it
	go test $$(grep -rl 'flag.Bool("update"' --include='*_test.go' golib | xargs -n 1 dirname | sort -u | sed 's|^|./|') \
	  -count=1 -update
	git diff --stat -- tests/golden

.PHONY: lint
lint: $(VENV)/.dev ## gofmt, go vet, ruff, mypy
	@unformatted=$$(gofmt -l $(GO_FILES)); test -z "$$unformatted" || { echo "run make fmt: $$unformatted"; exit 1; }
	go vet ./...
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

.PHONY: fmt
fmt: $(VENV)/.dev ## format Go and Python
	gofmt -w $(GO_FILES)
	$(VENV)/bin/ruff check --fix-only .
	$(VENV)/bin/ruff format .

.PHONY: bench
bench: $(VENV)/.dev build ## Redox beside its rivals, on fast and slow storage (BENCH="--quick --only 3KB"); the gate
	$(VENV)/bin/python benchmarks/epoch.py --json build/epoch.json $(BENCH)
	$(VENV)/bin/python benchmarks/gate.py build/epoch.json benchmarks/results/*.json

.PHONY: bench-targets
bench-targets: $(VENV)/.dev build ## the table of targets: Redox beside what C can do (BENCH="--quick --only 3KB")
	$(VENV)/bin/python benchmarks/targets.py $(BENCH)

.PHONY: bench-growth
bench-growth: $(VENV)/.dev build ## what grows with the data, the nodes and the workers
	$(VENV)/bin/python benchmarks/growth.py --json build/growth.json $(BENCH)

.PHONY: bench-curve
bench-curve: $(VENV)/.dev build ## what mixing costs on a disk, packed class after class
	$(VENV)/bin/python benchmarks/curve.py --json build/curve.json $(BENCH)

.PHONY: charts
charts: $(VENV)/.dev ## docs/charts from benchmarks/results
	$(VENV)/bin/python benchmarks/chart.py benchmarks/results/*.json
	$(VENV)/bin/python benchmarks/report.py benchmarks/results/*.json

.PHONY: bench-go
bench-go: ## Go micro-benchmarks
	go test -run '^$$' -bench . -benchmem ./golib/...

# ---- building ---------------------------------------------------------------------------------------------------

.PHONY: venv
venv: $(VENV)/.dev ## the development environment in .venv, with this package installed in place

.PHONY: build
build: ## the C library into python/redox; quick when little changed
	$(BUILD) --out $(LIBRARY)

.PHONY: wheels
wheels: $(VENV)/.dev ## wheels for x86_64 and aarch64 that run on any Linux with glibc 2.17
	for target in x86_64 aarch64; do REDOX_TARGET=$$target $(PIP) wheel --no-deps -w dist .; done

.PHONY: sdist
sdist: $(VENV)/.dev ## the source distribution
	$(VENV)/bin/python -m build --sdist

.PHONY: install
install: build ## header, library and redox.pc into DESTDIR and PREFIX
	install -D -m 644 include/redox.h $(DESTDIR)$(INCLUDEDIR)/redox.h
	install -D -m 755 $(LIBRARY) $(DESTDIR)$(LIBDIR)/libredox.so.$(VERSION)
	ln -sf libredox.so.$(VERSION) $(DESTDIR)$(LIBDIR)/libredox.so.0
	ln -sf libredox.so.0 $(DESTDIR)$(LIBDIR)/libredox.so
	install -d $(DESTDIR)$(LIBDIR)/pkgconfig
	sed -e 's|@prefix@|$(PREFIX)|' -e 's|@libdir@|$(LIBDIR)|' -e 's|@includedir@|$(INCLUDEDIR)|' \
	  -e 's|@version@|$(VERSION)|' -e 's|@libs@|-lredox|' capi/redox.pc.in > $(DESTDIR)$(LIBDIR)/pkgconfig/redox.pc

.PHONY: clean
clean: ## remove what was built; the virtual environment stays
	rm -rf build dist python/*.egg-info $(LIBRARY) capi/libredox.h .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find python tests benchmarks capi -name __pycache__ -prune -exec rm -rf {} +

# ---- files ------------------------------------------------------------------------------------------------------

$(LOG):
	mkdir -p $@

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV) || { echo "Python's venv is missing: on Debian, apt install python3-venv"; exit 1; }
	$(PYTHON) capi/build.py --requirements | xargs -r $(PIP) install -q

# Each environment is remade when its requirements change. The one for developers contains the one for the demo.
$(VENV)/.dev: $(VENV)/bin/python pyproject.toml setup.py
	$(PIP) install -q -e '.[dev]'
	touch $@ $(VENV)/.demo

$(VENV)/.demo: $(VENV)/bin/python pyproject.toml setup.py
	$(PIP) install -q -e '.[demo]'
	touch $@
