# What a developer does here. `make demo` and `make test` each work alone on a fresh Debian machine.

TARGET := $(or $(CARGO_TARGET_DIR),target)
APPS := $(patsubst apps/%.c,$(TARGET)/apps/%,$(filter-out apps/collectives.c,$(wildcard apps/*.c)))
# A program of MPI is not installed: a package would need all of Open MPI for it.
MPI_APPS := $(TARGET)/apps/collectives
MODULES := $(patsubst xdp/%.c,$(TARGET)/xdp/%.o,$(wildcard xdp/*.c)) $(TARGET)/xdp/sockmap.o
FUNCTIONS := $(patsubst offload/%.c,$(TARGET)/offload/%.so,$(wildcard offload/*.c))
# Namespaces and devices need root.
AS_ROOT := $(if $(filter-out 0,$(shell id -u)),sudo -E)
CFLAGS ?= -std=c11 -O2 -g -Wall -Wextra -Werror

.PHONY: help demo test build install uninstall deb apps xdp functions bench grid faults interop endurance differential suites model sanitize shake setup clean bench-instructions p4-tofino rtl device-check

help:
	@echo 'make demo    Debian programs on OpenTOE and on the kernel, side by side'
	@echo 'make test    format, lints, unit tests, then real programs over every port'
	@echo 'make grid    only the real programs:  make grid GRID="--stack linux --filter redis"'
	@echo 'make faults  only the bad input and the killed processes (FAULTS="--filter hostile")'
	@echo 'make interop  RDMA between OpenTOE and Linux in a virtual machine (INTEROP="--filter READ")'
	@echo 'make endurance  a thousand kills each, modules loaded a thousand times, 32,000 connections at once, a million one after the other: an hour'
	@echo 'make differential  random socket calls on the kernel and on OpenTOE, compared (DIFFERENTIAL="--sequences N --engine laminar")'
	@echo 'make suites  the tests of Go'"'"'s and Python'"'"'s own libraries on the kernel and on OpenTOE, compared (SUITES="--filter python")'
	@echo 'make model   rings and doorbells in every interleaving of two threads (loom)'
	@echo 'make sanitize   unsafe code and threads under sanitizers (needs a nightly compiler)'
	@echo 'make shake   unit tests many times on a crowded machine (SHAKE="--times 30 -p daemon --test lifecycle")'
	@echo 'make build   everything, optimised'
	@echo 'make install   into PREFIX=/usr/local (DESTDIR=... for packages); make uninstall takes it out again'
	@echo 'make deb     a Debian package, in target/deb'
	@echo 'make xdp     the modules in xdp/, as objects for "opentoe xdp load"'
	@echo 'make bench   everything that is said about speed, measured beside Linux (about 20 minutes): BENCH="--quick"'
	@echo 'make bench-instructions  what a segment costs, beside what it cost before (needs valgrind)'
	@echo 'make p4-tofino  the P4 programs through the compiler for the chip (bf-p4c), where it is installed'
	@echo 'make rtl     SystemVerilog from P4 against the interpreter, at length, and what an FPGA needs for it (verilator, yosys)'
	@echo 'make functions   the offload functions in offload/, as objects for "opentoe offload load"'
	@echo 'make device-check  a folder for a machine with a GPU, where tests/device/cuda checks device memory'
	@echo 'make setup   the Debian packages that all of this needs'

demo:
	@tests/setup demo
	cargo build --release -p cli -p daemon -p libtoe -p heap -p libverbs
	$(AS_ROOT) $(TARGET)/release/opentoe demo

test:
	tests/run

build: setup apps xdp functions
	cargo build --release --workspace --exclude fuzz --lib --bins $(addprefix --example ,cost comm_calls notification working_set)

# What is installed, by folder. The daemon's configuration is written only where there is none.
PREFIX ?= /usr/local
SYSCONFDIR ?= $(if $(filter /usr,$(PREFIX)),/etc,$(PREFIX)/etc)
BINDIR := $(PREFIX)/bin
LIBDIR := $(PREFIX)/lib/opentoe
MANDIR := $(PREFIX)/share/man
DOCDIR := $(PREFIX)/share/doc/opentoe
# As in the checkout, so that links between pages hold. Sample configurations and P4 programs are what one begins with.
DOCUMENTS := README.md ARCHITECTURE.md CONTRIBUTING.md LICENSE-MIT LICENSE-APACHE dist/grafana.json dist/Containerfile dist/kubernetes.yaml $(wildcard docs/*.md docs/*/*) $(wildcard config/* p4/*.p4)
COMPLETIONS := share/bash-completion/completions/opentoe share/zsh/site-functions/_opentoe share/fish/vendor_completions.d/opentoe.fish

install: build
	install -d $(addprefix $(DESTDIR),$(BINDIR) $(LIBDIR)/apps $(LIBDIR)/examples $(LIBDIR)/offload $(LIBDIR)/rdma $(LIBDIR)/xdp $(PREFIX)/include $(MANDIR)/man1 $(MANDIR)/man3) \
		$(addprefix $(DESTDIR),$(SYSCONFDIR)/opentoe $(SYSCONFDIR)/cdi $(PREFIX)/lib/systemd/system $(PREFIX)/lib/sysusers.d) \
		$(addprefix $(DESTDIR)$(PREFIX)/,$(dir $(COMPLETIONS)))
	install -m 755 $(addprefix $(TARGET)/release/,opentoe toed opentoe-sim opentoe-offload) $(DESTDIR)$(BINDIR)
	install -m 755 $(TARGET)/release/libtoe.so $(TARGET)/release/libtoe_heap.so $(TARGET)/release/libibverbs $(TARGET)/release/liboffload.so $(DESTDIR)$(LIBDIR)
	cp -Pf $(TARGET)/release/rdma/* $(DESTDIR)$(LIBDIR)/rdma
	install -m 755 $(APPS) $(DESTDIR)$(LIBDIR)/apps
	install -m 755 $(addprefix $(TARGET)/release/examples/,cost notification working_set) $(DESTDIR)$(LIBDIR)/examples
	install -m 644 $(MODULES) $(DESTDIR)$(LIBDIR)/xdp
	install -m 644 $(FUNCTIONS) $(DESTDIR)$(LIBDIR)/offload
	install -m 644 include/toe.h include/offload.h $(DESTDIR)$(PREFIX)/include
	$(TARGET)/release/opentoe manual $(DESTDIR)$(MANDIR)
	install -m 644 $(wildcard man/*.3) $(DESTDIR)$(MANDIR)/man3
	for document in $(DOCUMENTS); do \
		install -D -m 644 $$document $(DESTDIR)$(DOCDIR)/$$document || exit 1; done
	for shell in bash:share/bash-completion/completions/opentoe zsh:share/zsh/site-functions/_opentoe \
		fish:share/fish/vendor_completions.d/opentoe.fish; do \
		$(TARGET)/release/opentoe completions $${shell%%:*} >$(DESTDIR)$(PREFIX)/$${shell#*:} || exit 1; done
	sed 's|/usr/bin/toed|$(BINDIR)/toed|; s|/etc/opentoe|$(SYSCONFDIR)/opentoe|; s|/usr/share/doc|$(PREFIX)/share/doc|' dist/toed.service \
		>$(DESTDIR)$(PREFIX)/lib/systemd/system/toed.service
	sed 's|/usr/lib/opentoe|$(LIBDIR)|g; s|/usr/bin|$(BINDIR)|g' dist/cdi.json >$(DESTDIR)$(SYSCONFDIR)/cdi/opentoe.json
	install -m 644 dist/toe.sysusers.conf $(DESTDIR)$(PREFIX)/lib/sysusers.d/toe.conf
	[ -e $(DESTDIR)$(SYSCONFDIR)/opentoe/toed.toml ] || install -m 644 config/toed.toml $(DESTDIR)$(SYSCONFDIR)/opentoe

# The configuration stays: it may be the operator's.
uninstall:
	rm -f $(addprefix $(DESTDIR)$(BINDIR)/,opentoe toed opentoe-sim opentoe-offload) $(addprefix $(DESTDIR)$(PREFIX)/include/,toe.h offload.h) \
		$(addprefix $(DESTDIR)$(PREFIX)/,$(COMPLETIONS) lib/systemd/system/toed.service lib/sysusers.d/toe.conf) \
		$(DESTDIR)$(MANDIR)/man1/opentoe.1 $(DESTDIR)$(MANDIR)/man1/opentoe-*.1 $(addprefix $(DESTDIR)$(MANDIR)/,man5/toed.toml.5 man8/toed.8 $(patsubst man/%,man3/%,$(wildcard man/*.3)))
	rm -rf $(DESTDIR)$(LIBDIR) $(DESTDIR)$(DOCDIR) $(DESTDIR)$(SYSCONFDIR)/cdi/opentoe.json

deb: build
	dist/deb

apps: $(APPS) $(MPI_APPS)

$(TARGET)/apps/%: apps/%.c $(wildcard apps/*.h include/*.h)
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -pthread -o $@ $< $(LDLIBS)

# Only the tests' packages have its compiler.
$(MPI_APPS): $(TARGET)/apps/%: apps/%.c $(wildcard apps/*.h)
	@mkdir -p $(@D)
	@if command -v mpicc >/dev/null; then mpicc $(CFLAGS) -o $@ $<; else echo '$(@F): left out, there is no mpicc'; fi

$(TARGET)/apps/offload_% $(TARGET)/apps/write_load $(TARGET)/apps/meet: LDLIBS = -lrdmacm -libverbs
$(TARGET)/apps/offload_host: LDLIBS += -L$(TARGET)/release -loffload -Wl,-rpath,'$$ORIGIN/../release:$$ORIGIN/..'
$(TARGET)/apps/offload_host: | $(TARGET)/release/liboffload.so

$(TARGET)/release/liboffload.so:
	cargo build --release -p offload --lib

functions: $(FUNCTIONS)

$(TARGET)/offload/%.so: offload/%.c include/offload.h
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -fPIC -shared -Iinclude -o $@ $<

xdp: $(MODULES)

# The headers that come with the compiler's target stand in a folder of the machine's.
$(TARGET)/xdp/%.o: xdp/%.c $(wildcard xdp/*.h)
	@mkdir -p $(@D)
	clang -O2 -g -target bpf -Wall -Wextra -Werror -Wno-unused-parameter -I/usr/include/$(shell uname -m)-linux-gnu -c -o $@ $<

# Measured beside OpenTOE; no module of it.
$(TARGET)/xdp/sockmap.o: bench/sockmap.c
	@mkdir -p $(@D)
	clang -O2 -g -target bpf -Wall -Wextra -Werror -I/usr/include/$(shell uname -m)-linux-gnu -c -o $@ $<

grid: build
	$(AS_ROOT) $(TARGET)/release/grid $(GRID)

faults: build
	$(AS_ROOT) $(TARGET)/release/faults $(FAULTS)

# Needs QEMU and Debian's ordinary kernel, which it fetches and does not install.
interop: build
	$(AS_ROOT) $(TARGET)/release/interop $(INTEROP)

endurance: build
	for victim in client server daemon; do for link in fabric tap-server tap-client; do \
		$(AS_ROOT) $(TARGET)/release/endurance kills $$victim $$link 350 || exit 1; done; done
	for load in "many fabric" "many tap-server" "vlan tap-server" "vlan tap-client" "splice tap-server" "splice fabric"; do \
		$(AS_ROOT) $(TARGET)/release/endurance modules $$load 1000 || exit 1; done
	$(AS_ROOT) $(TARGET)/release/endurance restarts fabric 100
	$(AS_ROOT) $(TARGET)/release/endurance connections 32000
	$(AS_ROOT) $(TARGET)/release/endurance churn fabric 1000000

differential: build
	$(TARGET)/release/differential $(DIFFERENTIAL)

# Nothing is compiled there.
device-check: $(TARGET)/apps/comm_device
	cargo build --release -p cli -p daemon -p libtoe -p libverbs
	install -d $(TARGET)/device-check
	install -s -t $(TARGET)/device-check $(TARGET)/release/toed $(TARGET)/release/libtoe.so $<

# What is not installed is left out: a Go compiler, Debian's libpython3.11-testsuite.
suites: build
	$(AS_ROOT) $(TARGET)/release/suites $(SUITES)

bench: build
	$(AS_ROOT) $(TARGET)/release/opentoe bench all --directory $(TARGET)/bench $(BENCH)

model:
	RUSTFLAGS='--cfg loom' CARGO_TARGET_DIR=$(TARGET)/loom cargo test -p shm --release --lib

sanitize:
	tests/sanitize address
	tests/sanitize thread

shake:
	tests/shake $(SHAKE)

bench-instructions:
	bench/instructions

p4-tofino:
	p4/tofino

rtl:
	cargo test --profile bench -p rmt --test rtl -- --include-ignored --nocapture
	cargo test --profile bench -p zeronic --test rtl -- --include-ignored --nocapture
	cargo test --profile bench -p sim --test gates -- --include-ignored --nocapture
	p4/formal
	p4/synthesis
	crates/zeronic/rtl/synthesis

setup:
	@tests/setup

clean:
	cargo clean
