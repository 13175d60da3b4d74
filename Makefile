# traind: GNU make >= 4.3. `make help` lists the targets, `make config` what was found here.
# Needs at build time what `make deps` installs; at run time see docs/architecture.md.
# Objects live in $(B); a sanitizer build is the same tree in another $(B).

MAKEFLAGS += -rR --no-print-directory
# As many jobs as cores, unless the command line says how many. A make below this one has the job server
# of the first. While make 4.3 reads a makefile, MAKEFLAGS shows neither.
ifeq ($(MAKELEVEL)$(filter -j% --jobs%,$(MAKEFLAGS) $(shell tr '\0' ' ' < /proc/$$PPID/cmdline)),0)
MAKEFLAGS += -j$(shell nproc)
endif
.SUFFIXES:
.DELETE_ON_ERROR:
.SECONDARY:
SHELL := /bin/bash

-include config.mk

# ---- yours to set (command line, environment, config.mk) --------------------------------------
B         ?= build
PREFIX    ?= /usr/local
# A cross build: prefix of the compiler's programs, and the other machine's libraries and headers.
CROSS     ?=
SYSROOT   ?=
CC        := $(if $(filter default undefined,$(origin CC)),$(CROSS)gcc,$(CC))
CXX       := $(if $(filter default undefined,$(origin CXX)),$(if $(findstring clang,$(CC)),clang++,$(CROSS)g++),$(CXX))
FUZZ_S    ?= 15
ROUNDS    ?= 3
MINUTES   ?= 10
SEED      ?= 1
LEVEL     ?=
TORCH     ?=
# Measurements run in folders of their own: a path from here has to be whole.
ifneq ($(findstring /,$(TORCH)),)
override TORCH := $(if $(filter /% ~%,$(TORCH)),,$(CURDIR)/)$(TORCH)
endif
OBJCOPY   ?= $(CROSS)objcopy
OPT       ?= -O2 -g
SAN       ?=
V         ?= 0
WERROR    ?= $(if $(CI),1,0)
T         ?=
PYTHON    ?= python3

# The release: its number grows before what people install may differ. The version of a tree counts commits, too.
VERSION := 0.1.0
version = $(shell deploy/version.sh $(VERSION))
Q       := $(if $(filter 1,$(V)),,@)
say      = $(if $(filter 1,$(V)),,@printf '%-6s %s\n' $(1) $(2))

# ---- packages: the one list of what the project needs (Debian's names) -------------------------
deps_build := gcc g++ make pkg-config libc6-dev libgrpc-dev libprotobuf-c-dev protobuf-c-compiler \
	libre2-dev libevent-dev libsqlite3-dev libyaml-dev libjansson-dev zlib1g-dev libxxhash-dev libssl-dev libdnnl-dev libgloo-dev libsmartcols-dev libhwloc-dev
deps_test  := libcmocka-dev clang clang-format libclang-rt-dev libomp-dev python3 python3-venv \
	iproute2 nftables zsh fish strace
deps_full  := gcc-aarch64-linux-gnu g++-aarch64-linux-gnu qemu-user debootstrap systemd-container
deps_data  := dataset-fashion-mnist dict-gcide
deps_pip   := grpcio==1.66.2 grpcio-tools==1.66.2 grpcio-health-checking==1.66.2 \
	grpcio-reflection==1.66.2 pytest==8.3.3 safetensors==0.4.5 pillow==11.0.0 tensorboard==2.18.0 \
	scikit-learn==1.5.2 \
	'numpy==1.26.4;python_version<"3.13"' 'numpy==2.1.3;python_version>="3.13"'
deps_rivals := torch lightning transformers accelerate safetensors numpy

# ---- flags --------------------------------------------------------------------------------------
machine := $(shell $(CC) -dumpmachine)
root    := $(if $(SYSROOT),$(abspath $(SYSROOT)))
sysroot := $(if $(root),--sysroot=$(root))
pkg     := $(if $(root),PKG_CONFIG_SYSROOT_DIR=$(root) \
	PKG_CONFIG_LIBDIR=$(root)/usr/lib/$(machine)/pkgconfig:$(root)/usr/lib/pkgconfig:$(root)/usr/share/pkgconfig) pkg-config
is_clang := $(findstring clang,$(CC))
# Another compiler than ours may warn of what ours does not: that stops no user.
werror := $(if $(filter 1,$(WERROR)),-Werror)
warn := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wstrict-prototypes \
	-Wmissing-prototypes -Wcast-qual -Wwrite-strings -Wvla -Wundef -Wpointer-arith $(werror)
# clang blames our lines for what protobuf-c's INIT macros cast away in them; gcc checks the rest.
# And it warns where a loop does not vectorize at the level for the oldest processors.
warn += $(if $(is_clang),-Wno-cast-qual -Wno-pass-failed)
# Sanitized code defeats gcc's range analysis, which then sees truncation where there is none.
san  := $(if $(SAN),-fsanitize=$(SAN) -fno-sanitize-recover=all -fno-omit-frame-pointer -DTD_DEBUG $(if $(is_clang),,-Wno-format-truncation))
# Generated and third-party headers come as system headers: their macros cast const away.
inc  := -Iinclude -I. -isystem $(B)/gen -isystem $(root)/usr/include/oneapi
cpp  := -D_GNU_SOURCE -DTD_VERSION='"$(VERSION)"' $(inc) $(CPPFLAGS)
cc   := $(CC) $(sysroot) -std=c17 $(OPT) -fPIC -fno-math-errno -ffp-contract=off -pthread $(warn) $(san) $(CFLAGS)
# C links the programs, without what clang's check of virtual calls needs of C++.
cxx  := $(CXX) $(sysroot) -std=c++17 $(OPT) -fPIC -pthread -Wall -Wextra -Wpedantic -Wshadow $(werror) $(san) \
	$(if $(findstring undefined,$(SAN)),-fno-sanitize=vptr) $(CXXFLAGS)
ld   := $(CC) $(sysroot) -pthread $(san) $(LDFLAGS)

# Code generations of lib/base/cpu_level.h: what is compiled once for each (kernels, *_loops.c).
arch   := $(firstword $(subst -, ,$(machine)))
levels := generic $(if $(filter x86_64,$(arch)),v3 v4)
march_v3 := -march=x86-64-v3
march_v4 := -march=x86-64-v4

# ---- sources, by folder -------------------------------------------------------------------------
# A folder with its inner rooms; the sources of folders; their objects.
under = $(1) $(foreach d,$(wildcard $(1)/*/),$(call under,$(patsubst %/,%,$(d))))
src   = $(wildcard $(addsuffix /*.c,$(1)))
obj   = $(patsubst %.c,$(B)/obj/%.o,$(filter-out %_loops.c,$(call src,$(1)))) \
	$(foreach l,$(levels),$(patsubst %.c,$(B)/obj/%.$(l).o,$(filter %_loops.c,$(call src,$(1)))))
all_of = $(call obj,$(foreach d,$(1),$(call under,$(d))))
# Of objects those of these names.
named = $(filter $(addprefix %/,$(addsuffix .o,$(2))),$(1))
protos := $(wildcard proto/traind/v1/*.proto) $(wildcard proto/grpc/health/v1/*.proto) \
	$(wildcard proto/grpc/reflection/*/*.proto) $(wildcard proto/google/*/*.proto)
gen_c  := $(patsubst proto/%.proto,$(B)/gen/%.pb-c.c,$(protos))
gen_o  := $(patsubst $(B)/gen/%.c,$(B)/obj/gen/%.o,$(gen_c))
desc   := $(B)/gen/descriptors.bin

base_o     := $(call all_of,lib/base lib/plugin)
attempt_o  := $(call all_of,lib/attempt)
spec_o     := $(call all_of,lib/spec lib/job)
tls_o      := $(call all_of,lib/tls)
topology_o := $(call all_of,lib/topology)
pattern_o  := $(call all_of,lib/pattern) $(B)/obj/lib/pattern/pattern.o
loop_o     := $(call all_of,lib/loop)
rpc_o      := $(call all_of,lib/rpc) $(loop_o)
version_o  := $(call all_of,lib/version)
gloo_dir   := collectives/gloo
engine_o   := $(filter-out $(B)/obj/$(gloo_dir)/%,$(call all_of,engine accelerators/reference strategies collectives comm_hooks precisions workloads))
kernels    := $(call under,accelerators/cpu/kernels)
cpu_o      := $(call obj,$(filter-out $(kernels),$(call under,accelerators/cpu))) $(foreach l,$(levels),$(B)/obj/accelerators/cpu/kernels.$(l).o)
queue_o    := $(call all_of,accelerators/queue)
far_o      := $(call all_of,accelerators/far) $(queue_o)
gloo_o     := $(call obj,$(gloo_dir)) $(B)/obj/$(gloo_dir)/gloo.o
coord_o    := $(call all_of,daemon/coordinator)
node_o     := $(call all_of,daemon/node)
daemon_o   := $(call obj,daemon) $(version_o)
launcher_o := $(call all_of,daemon/launcher) $(version_o)
fabric_o   := $(call all_of,fabric)
reports_o  := $(call all_of,daemon/worker/reports)
nvml_o     := $(call all_of,lib/nvml)
worker_o   := $(call all_of,daemon/worker) $(nvml_o) $(version_o)
run_only_o := $(call all_of,client/run)
client_o   := $(filter-out $(run_only_o),$(call all_of,client)) $(version_o)
run_o      := $(run_only_o) $(version_o) $(call named,$(client_o),explain format print place progress screen spec_file)

bins := $(addprefix $(B)/bin/,traind traind-launcher traind-worker traind-run trainctl)
libs := $(B)/lib/libtraind.so $(B)/lib/traind/accelerator-cpu.so

# Jobs of several nodes need libgloo, of the kind whose pairs make their own connections.
gloo_h := $(root)/usr/include/gloo/transport/tcp
has_gloo := $(if $(wildcard $(gloo_h)/listener.h),,$(wildcard $(gloo_h)/pair.h))
libs += $(if $(has_gloo),$(B)/lib/traind/collective-hierarchy.so)

unit_src   := $(wildcard $(addsuffix /test_*.c,$(call under,tests/unit)) tests/conform/conform_*.c tests/sim/test_*.c)
unit_bins  := $(patsubst tests/%.c,$(B)/tests/%,$(unit_src))
bench_bins := $(patsubst tests/%.c,$(B)/tests/%,$(wildcard tests/bench/bench_*.c))
fuzz_bins  := $(patsubst tests/%.c,$(B)/tests/%,$(wildcard tests/fuzz/*/fuzz_*.c))
nvml_doubles := $(patsubst %,$(B)/tests/doubles/%.so,nvml nvml_old nvml_other)
helper_bins := $(patsubst tests/%.c,$(B)/tests/%,$(wildcard tests/scenario/*.c)) $(addprefix $(B)/tests/plugins/,accelerator-far.so dataset-slow_synthetic.so strategy-shown_ddp.so strategy-zero1.so) $(nvml_doubles)

# What plugins and programs of one's own are built with, also where nothing is installed.
pc := $(B)/lib/pkgconfig/traind.pc

.PHONY: all
all: $(bins) $(libs) $(pc) ## build everything (the default)

# Which oneDNN the build finds: of 2 or 3 (accelerators/cpu/onednn/dnnl.c).
dnnl_h := $(root)/usr/include/oneapi/dnnl/dnnl_version.h
dnnl_version = $(if $(wildcard $(dnnl_h)),$(shell awk '/define DNNL_VERSION_(MAJOR|MINOR|PATCH) / \
	{ v = v dot $$3; dot = "." } END { print v }' $(dnnl_h)))

# ---- probes: one clear line for what is missing -------------------------------------------------
no_probe := dist help clean config deps format lint demo check check-full rivals install-built uninstall
ifneq ($(if $(MAKECMDGOALS),$(filter-out $(no_probe),$(MAKECMDGOALS)),build),)
missing := $(strip $(foreach p,grpc:libgrpc-dev libprotobuf-c:libprotobuf-c-dev libevent:libevent-dev re2:libre2-dev \
	sqlite3:libsqlite3-dev yaml-0.1:libyaml-dev jansson:libjansson-dev zlib:zlib1g-dev \
	libxxhash:libxxhash-dev openssl:libssl-dev smartcols:libsmartcols-dev hwloc:libhwloc-dev,$(if $(shell $(pkg) --exists $(firstword $(subst :, ,$(p))) 2>/dev/null && echo y),,$(lastword $(subst :, ,$(p))))) \
	$(if $(shell command -v protoc-c),,protobuf-c-compiler) $(if $(wildcard $(dnnl_h)),,libdnnl-dev))
$(if $(missing),$(error these Debian packages are missing: $(missing). Run `make deps`, or apt-get install them))
ifeq ($(MAKELEVEL),0)
$(if $(has_gloo),,$(info gloo: no libgloo-dev that fits, so this build has no jobs of several nodes. Run `make deps`))
endif
endif

# ---- rules ----------------------------------------------------------------------------------------
# A change of compiler, flags or oneDNN (its structs differ) rebuilds everything; the stamp is
# rewritten only when it differs.
$(B)/flags: FORCE
	@mkdir -p $(@D); printf '%s\n' '$(subst ','\'',$(all_flags))' | cmp -s - $@ || \
	 printf '%s\n' '$(subst ','\'',$(all_flags))' > $@
all_flags = $(cc) $(cxx) $(cpp) $(ld) $(grpc) oneDNN $(dnnl_version) $(foreach f,$(sort $(filter flags_%,$(.VARIABLES))),$(f)=$($(f)))
.PHONY: FORCE
FORCE:

# Flags of a folder hold in its inner rooms, unless those have their own.
folder   = $(patsubst %/,%,$(dir $(1)))
room_flags = $(or $(flags_$(subst /,_,$(1))),$(if $(findstring /,$(1)),$(call room_flags,$(call folder,$(1)))))

$(B)/obj/%.o: %.c $(B)/flags | $(gen_c)
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(cc) $(cpp) $(call room_flags,$(call folder,$<)) -MD -MP -c $< -o $@

# The one rule for C++: the headers of libgloo and of RE2 allow no other language.
$(B)/obj/%.o: %.cc $(B)/flags
	$(call say,CXX,$<)
	@mkdir -p $(@D)
	$(Q)$(cxx) $(cpp) -MD -MP -c $< -o $@

# A header that Debian's package lacks (memory.hh of collective-hierarchy).
gloo_memory := $(if $(wildcard $(root)/usr/include/gloo/common/memory.h),,$(B)/gen/gloo/common/memory.h)
$(B)/gen/gloo/common/memory.h: $(gloo_dir)/memory.hh
	@mkdir -p $(@D); cp $< $@
$(B)/obj/$(gloo_dir)/gloo.o: $(gloo_memory)

# A source of a level: the same, with the level's instructions and name (TD_LEVELED). Loops are
# there to become vectors, and no trap is ever read: a comparison may be computed for every lane.
flags_loops := -O3 -fno-trapping-math
define level_rules
$(B)/obj/%.$(1).o: %.c $(B)/flags | $(gen_c)
	$$(call say,CC,'$$< ($(1))')
	@mkdir -p $$(@D)
	$$(Q)$(cc) $(cpp) $(march_$(1)) -DTD_LEVEL=$(1) $$(call room_flags,$$(call folder,$$<)) $$(if $$(filter %_loops.c,$$<),$$(flags_loops)) -MD -MP -c $$< -o $$@

# A level's kernels as one object that shows its table alone.
$(B)/obj/accelerators/cpu/kernels.$(1).o: $(patsubst %.c,$(B)/obj/%.$(1).o,$(call src,$(kernels)))
	$$(call say,LD,$$@)
	$$(Q)$(CC) -r -nostdlib $$^ -o $$@.all && $(OBJCOPY) --keep-global-symbol=td_kernels_$(1) $$@.all $$@ && rm $$@.all
endef
$(foreach l,$(levels),$(eval $(call level_rules,$(l))))

$(B)/obj/gen/%.o: $(B)/gen/%.c $(B)/flags
	@mkdir -p $(@D)
	$(Q)$(CC) $(sysroot) -std=c17 $(OPT) -fPIC $(san) $(cpp) -MD -MP -c $< -o $@

$(B)/gen/%.pb-c.c $(B)/gen/%.pb-c.h &: proto/%.proto
	$(call say,PROTO,$<)
	@mkdir -p $(B)/gen
	$(Q)protoc-c -Iproto --c_out=$(B)/gen $<

$(desc): $(protos)
	@mkdir -p $(@D)
	$(Q)protoc-c -Iproto --include_imports --descriptor_set_out=$@ $(protos)

$(B)/obj/lib/rpc/descriptors.o: $(desc)
# Rewritten when the version is another one: then one object is compiled, and programs are linked.
built_version := $(B)/gen/built_version.h
$(built_version): FORCE
	@mkdir -p $(@D); version=$$(deploy/version.sh $(VERSION)) && [ "$$version" ] || \
	 { echo 'deploy/version.sh prints no version: is the file `release` empty or not readable?' >&2; exit 1; }; \
	 line="#define TD_BUILT_VERSION \"$$version\""; echo "$$line" | cmp -s - $@ || echo "$$line" > $@
$(B)/obj/lib/version/version.o: $(built_version)
$(call named,$(client_o),templates): $(wildcard examples/init/*)
flags_lib_rpc := -DTD_DESCRIPTORS='"$(desc)"'
# OpenMP is the cpu accelerator's own; nothing else may start its threads. Its sums may use FMA.
flags_accelerators_cpu := -fopenmp -O3 -ffp-contract=fast
flags_accelerators_cpu_onednn := $(flags_accelerators_cpu)
# Kernels start no threads. No trap is ever read: a comparison may be computed for every lane.
flags_accelerators_cpu_kernels := -fopenmp-simd -O3 -ffp-contract=fast -fno-trapping-math
# Digests of checkpoints: XXH3's loops are unrolled only then.
flags_lib_base := -O3

static := -Wl,-Bstatic -ljansson -lz -Wl,-Bdynamic
# gRPC needs 50 libraries, and to load them takes 8 ms of every start: where their archives are
# installed they are linked in (not under sanitizers, whose suppressions name libraries). OpenSSL
# stays a library, so that an update of it reaches traind.
archive = $(filter /%,$(shell $(CC) $(sysroot) -print-file-name=$(1)))
ifneq ($(if $(SAN),,$(and $(call archive,libgrpc.a),$(call archive,libstdc++.a))),)
grpc := $(B)/obj/lib/rpc/waits.o -Wl,--wrap=syscall -Wl,--gc-sections -Wl,-Bstatic -Wl,--start-group $(filter -lgrpc% -lgpr -labsl%,$(shell $(pkg) --static --libs grpc re2)) \
	-lupb -lre2 -lcares -laddress_sorting -lstdc++ -Wl,--end-group -Wl,-Bdynamic -static-libgcc
else
grpc := -lgrpc -lgpr -lre2 -lstdc++
endif
# A rank's program has RE2 and libevent, for its verb reports: linked in, they cost its start nothing.
ifneq ($(if $(SAN),,$(and $(call archive,libre2.a),$(call archive,libevent_core.a),$(call archive,libstdc++.a))),)
reports_libs := -Wl,--gc-sections -Wl,-Bstatic -Wl,--start-group -lre2 $(filter -labsl%,$(shell $(pkg) --static --libs re2)) \
	-lstdc++ -levent_core -Wl,--end-group -Wl,-Bdynamic -static-libgcc
else
reports_libs := -lre2 -lstdc++ -levent_core
endif
$(B)/lib/libtdbase.a: $(base_o)
$(B)/lib/libtdattempt.a: $(attempt_o)
$(B)/lib/libtdspec.a: $(spec_o)
$(B)/lib/libtdtls.a: $(tls_o)
$(B)/lib/libtdtopology.a: $(topology_o)
$(B)/lib/libtdrpc.a: $(rpc_o)
$(B)/lib/libtdproto.a: $(gen_o)
$(B)/lib/%.a:
	$(call say,AR,$@)
	@mkdir -p $(@D); rm -f $@
	$(Q)$(CROSS)ar rcs $@ $^

# One copy of lib/base, lib/plugin, lib/attempt, lib/spec, engine and fabric per process: the worker, plugins and
# programs of others link this. Foreign code inside stays hidden; Debian's libjansson.a was not built
# as PIC and mentions stdin, hence the defsym.
$(B)/lib/libtraind.so: $(base_o) $(attempt_o) $(spec_o) $(engine_o) $(fabric_o) fabric/libtraind.map
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(ld) -shared -Wl,-soname,libtraind.so -Wl,--version-script=fabric/libtraind.map \
	  -Wl,--exclude-libs,ALL $(if $(SAN),,-Wl,-z,defs -Wl,-Bsymbolic) -Wl,--defsym=stdin=td_no_stdin \
	  $(filter %.o,$^) $(static) -Wl,-Bstatic -lyaml -Wl,-Bdynamic -lm -o $@

$(B)/lib/traind/accelerator-cpu.so: $(cpu_o) $(B)/lib/libtraind.so
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(ld) -shared -fopenmp $(cpu_o) -L$(B)/lib -ltraind -ldnnl -lm -Wl,-rpath,'$$ORIGIN/..' -o $@

$(B)/lib/traind/collective-hierarchy.so: $(gloo_o) $(B)/lib/libtraind.so
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(ld) -shared $(gloo_o) -L$(B)/lib -ltraind -lgloo -lstdc++ -Wl,-rpath,'$$ORIGIN/..' -o $@

$(B)/bin/traind: $(daemon_o) $(coord_o) $(node_o) $(pattern_o) $(B)/lib/libtdtopology.a $(B)/lib/libtdspec.a $(B)/lib/libtdrpc.a $(B)/lib/libtdtls.a $(B)/lib/libtdproto.a $(B)/lib/libtdattempt.a $(B)/lib/libtdbase.a
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(ld) $^ $(grpc) -levent -lsqlite3 -lyaml -lprotobuf-c -ljansson -lz -lssl -lcrypto -lhwloc -lm -o $@

$(B)/bin/trainctl: $(client_o) $(B)/lib/libtdspec.a $(B)/lib/libtdrpc.a $(B)/lib/libtdtls.a $(B)/lib/libtdproto.a $(B)/lib/libtdattempt.a $(B)/lib/libtdbase.a
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(ld) $^ $(grpc) -levent -lyaml -lprotobuf-c -ljansson -lz -lssl -lcrypto -lsmartcols -lm -o $@

$(B)/bin/traind-run: $(run_o) $(B)/lib/libtdtopology.a $(B)/lib/libtdspec.a $(B)/lib/libtdproto.a $(B)/lib/libtdattempt.a $(B)/lib/libtdbase.a
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(ld) $^ -lyaml -lhwloc -Wl,-Bstatic -lprotobuf-c -ljansson -lz -Wl,-Bdynamic -lm -o $@

$(B)/bin/traind-launcher: $(launcher_o) $(B)/lib/libtdproto.a $(B)/lib/libtdattempt.a $(B)/lib/libtdbase.a
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(ld) $^ -Wl,-Bstatic -lprotobuf-c -ljansson -lz -Wl,-Bdynamic -lm -o $@

$(B)/bin/traind-worker: $(worker_o) $(pattern_o) $(loop_o) $(B)/lib/libtraind.so
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(ld) $(worker_o) $(pattern_o) $(loop_o) -L$(B)/lib -ltraind $(reports_libs) -lm \
	  -Wl,-rpath,'$$ORIGIN/../lib' -o $@

# Its paths begin at itself, because a tree may be copied elsewhere.
$(pc): deploy/traind.pc.in Makefile $(built_version)
	$(call say,GEN,$@)
	@mkdir -p $(@D)
	$(Q)sed -e 's|@PREFIX@|$${pcfiledir}/../..|' -e 's|@VERSION@|$(version)|' \
	  -e "s|^includedir=.*|includedir=\$${pcfiledir}/$$(realpath --relative-to=$(@D) include)|" $< >$@

# ---- tests ----------------------------------------------------------------------------------------
# Unit tests link everything; a test that needs the daemons' cores takes their objects too. A new version
# alone is no reason to link them again.
# From the folder of a target up to $(B).
up = $(subst / ,/,$(foreach d,$(subst /, ,$(patsubst $(B)/%,%,$(@D))),../) )
core_check_o := $(B)/obj/tests/unit/coordinator/core/core_check.o
test_libs := $(call named,$(client_o),format job_gpus metrics_rows node_state plot print progress screen spec_diff tail top_page) $(B)/obj/daemon/allow.o $(far_o) $(coord_o) $(node_o) $(filter-out %/main.o $(version_o),$(launcher_o)) $(reports_o) $(pattern_o) $(core_check_o) $(B)/lib/libtdtopology.a $(B)/lib/libtdrpc.a $(B)/lib/libtdtls.a $(B)/lib/libtdproto.a
$(B)/tests/%: tests/%.c $(B)/flags $(test_libs) $(B)/lib/libtraind.so | $(gen_c) $(version_o)
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(cc) $(fuzzer) $(cpp) -MD -MP -MF $@.d $< $(test_libs) $(version_o) -L$(B)/lib -ltraind -lcmocka -lgrpc -lgpr -lre2 -lstdc++ -levent \
	  -lsqlite3 -lyaml -lprotobuf-c -lssl -lcrypto -lhwloc -lm -Wl,-rpath,'$$ORIGIN/$(up)lib' -o $@

# Plugins of a stranger: never installed. The reference, which far extends, is in libtraind.
$(B)/tests/plugins/accelerator-far.so: $(B)/obj/tests/plugins/far.o $(far_o)
$(B)/tests/plugins/dataset-slow_synthetic.so: $(B)/obj/tests/plugins/slow_synthetic.o
$(B)/tests/plugins/strategy-shown_ddp.so: $(B)/obj/tests/plugins/shown_ddp.o
$(B)/tests/plugins/strategy-zero1.so: $(B)/obj/tests/plugins/zero1.o
$(B)/tests/plugins/%.so: $(B)/lib/libtraind.so
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(ld) -shared $(filter %.o,$^) -L$(B)/lib -ltraind -Wl,-rpath,'$$ORIGIN/../../lib' -o $@

# The NVIDIA driver's library, as a file scripts it. It has nothing of traind in it.
$(B)/tests/doubles/%.so: $(B)/obj/tests/doubles/%.o
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(ld) -shared $< -o $@

# Loops that the bench compares with are compiled once per CPU level, like kernels.
flags_tests_bench := -O3 -ffp-contract=fast
bench_loops_o := $(foreach l,$(levels),$(B)/obj/tests/bench/loops.$(l).o)
looped := $(addprefix $(B)/tests/bench/,bench_fma bench_products)
$(looped): test_libs += $(bench_loops_o)
$(looped): $(bench_loops_o)

# A test of what lies in a plugin.
ifneq ($(has_gloo),)
$(B)/tests/unit/collectives/test_gloo_slices: $(B)/obj/$(gloo_dir)/gloo.o
$(B)/tests/unit/collectives/test_gloo_slices: test_libs += $(B)/obj/$(gloo_dir)/gloo.o -lgloo -lstdc++
$(B)/tests/unit/collectives/test_gloo_slices: cpp += -DTD_HAS_GLOO
endif

# Tests of NVML load the double.
nvml_tests := $(B)/tests/unit/base/test_nvml
$(nvml_tests): test_libs += $(nvml_o)
$(nvml_tests): $(nvml_o) $(nvml_doubles)

# The only unit test with threads of OpenMP.
$(B)/tests/unit/cpu/test_cpu_parallel: cpp += -fopenmp

# What check.py runs for T, which knows names, tags and cases.
unit_some := $(if $(T),$(addprefix $(B)/tests/,$(shell $(PYTHON) tests/tools/check.py --build $(B) --match '$(T)' --list)),$(unit_bins))
.PHONY: unit
unit: $(unit_some) all ## build and run the unit tests (T=substring narrows)
	@$(PYTHON) tests/tools/check.py --build $(B) --only unit --match '$(T)'

.PHONY: conformance
conformance_bins = $(addprefix $(B)/tests/,$(shell $(PYTHON) tests/tools/conformance.py --build $(B) --list))
conformance: all $(helper_bins) $(B)/venv/ready ## run the tests that are marked with a contract of docs/lightning.md, and print how each did
	@$(MAKE) $(conformance_bins)
	@$(B)/venv/bin/python tests/tools/conformance.py --build $(B)

.PHONY: mutations helpers
helpers: $(helper_bins)
mutation_bins = $(addprefix $(B)/tests/,$(shell $(PYTHON) tests/tools/mutations.py --build $(B) --match '$(T)' --list))
mutations: all $(helper_bins) $(B)/venv/ready ## break what docs/lightning.md says, in a copy: its tests have to notice (T=4: a contract, T=part of a name or of a row)
	@$(MAKE) $(mutation_bins)
	@$(B)/venv/bin/python tests/tools/mutations.py --build $(B) --match '$(T)'

.PHONY: scenario
scenario: all $(helper_bins) $(B)/venv/ready ## run scenario tests with real processes (T=words of pytest's -k: a file, a test)
	@TRAIND_BUILD=$(abspath $(B)) $(B)/venv/bin/python -m pytest -q tests/scenario -k '$(T)'

$(B)/venv/ready: Makefile
	$(call say,VENV,$(B)/venv)
	$(Q)$(PYTHON) -m venv $(B)/venv && $(B)/venv/bin/pip install -q --disable-pip-version-check $(deps_pip) && touch $@

.PHONY: check check-all check-full check-full-all
check: deps ## set up, build, run every test; ends with one line of counts
	@$(MAKE) check-all
check-all: all $(unit_bins) $(helper_bins) $(B)/venv/ready lint
	@$(B)/venv/bin/python tests/tools/check.py --build $(B) --match '$(T)'
check-full: deps ## the same, with sanitizers, kills, fuzzing and parity (under an hour; TORCH= or `make rivals` for parity)
	@tests/tools/deps.sh $(deps_full) || true
	@$(MAKE) check-full-all
# Without torch there is no parity, which CI does not allow: it gets one.
check-full-all: all $(unit_bins) $(helper_bins) $(B)/tests/bench/bench_hosts $(B)/venv/ready $(if $(CI),$(if $(TORCH),,rivals)) lint
	@$(MAKE) clang
	@$(MAKE) $(asan) unit-bins
	@$(MAKE) $(tsan) T=tsan unit-bins
	@$(MAKE) $(libfuzzer) T= fuzz-bins
	@tests/tools/arm64.sh $(B)/arm64 $(filter-out libclang% libomp%,$(filter %-dev,$(deps_build) $(deps_test)))
	@if [ -d $(B)/arm64 ]; then $(MAKE) $(arm64) T= unit-bins; fi
	@TD_FULL=1 FUZZ_S=$(FUZZ_S) TORCH='$(TORCH)' $(B)/venv/bin/python tests/tools/check.py --build $(B) --full

asan := B=$(B)-asan SAN=address,undefined OPT='-O1 -g'
tsan := B=$(B)-tsan SAN=thread OPT='-O1 -g'
arm64 := B=$(B)-arm64 CROSS=aarch64-linux-gnu- SYSROOT=$(B)/arm64
libfuzzer := B=$(B)-fuzz CC=clang SAN=fuzzer-no-link,address,undefined OPT='-O1 -g'
.PHONY: clang asan tsan unit-bins
unit-bins: all $(unit_some)
clang: ## build programs and unit tests with clang
	@$(MAKE) B=$(B)-clang CC=clang T= unit-bins
asan: ## unit tests under the address and undefined sanitizers
	@$(MAKE) $(asan) unit
tsan: ## lib/base, daemons and collectives under the thread sanitizer
	@TSAN_OPTIONS=suppressions=$(CURDIR)/tests/tools/tsan.supp $(MAKE) $(tsan) unit T='$(or $(T),tsan)'

# Each entry of tests/fuzz under libFuzzer; what it finds is left in $(B)-fuzz. The unit tests' drivers
# write the corpus to begin with.
.PHONY: fuzz fuzz-all fuzz-bins
fuzz_some := $(if $(T),$(foreach f,$(fuzz_bins),$(if $(findstring $(T),$f),$f)),$(fuzz_bins))
$(B)/tests/fuzz/%: fuzzer := -fsanitize=fuzzer
fuzz_driver = $(subst /tests/fuzz/,/tests/unit/fuzz/,$(dir $1))test_$(notdir $1)
fuzz: $(foreach f,$(fuzz_some),$(call fuzz_driver,$f)) ## the fuzz entries under libFuzzer (FUZZ_S=15 seconds each, T=substring)
	@for d in $(foreach f,$(fuzz_some),$(call fuzz_driver,$f)); do t=$${d##*/test_fuzz_}; \
	  mkdir -p $(B)-fuzz/seeds/$$t $(B)-fuzz/corpus/$$t && TD_FUZZ_CORPUS=$(B)-fuzz/seeds/$$t $$d > /dev/null 2>&1 || exit 1; done
	@$(MAKE) $(libfuzzer) fuzz-all
fuzz-bins: $(fuzz_some)
fuzz-all: $(fuzz_some)
	@for f in $(fuzz_some); do t=$${f##*/fuzz_}; echo "fuzz $$t"; \
	  $$f -max_total_time=$(FUZZ_S) -timeout=10 -rss_limit_mb=2048 -max_len=8192 -verbosity=0 \
	    -artifact_prefix=$(B)/$$t- $(B)/corpus/$$t $(B)/seeds/$$t || exit 1; done

.PHONY: storm
storm: all $(B)/venv/ready ## kills, stops, pauses at random for MINUTES=10, embedded and split (SEED=1): equal bits, nothing left over
	@TD_FULL=1 TRAIND_BUILD=$(abspath $(B)) TD_STORM_MINUTES=$(MINUTES) TD_STORM_SEED=$(SEED) \
	  $(B)/venv/bin/python -m pytest -q -s tests/scenario/failures/test_s90_storm.py

torch := $(if $(TORCH),--torch '$(TORCH)')
.PHONY: bench
bench: all $(bench_bins) $(B)/venv/ready ## figures as JSON lines and a table, beside the rivals (LEVEL=avx2: both held to a CPU level; ROUNDS=3; TORCH=; T=parts, by comma)
	@$(B)/venv/bin/python tests/bench/bench.py --build $(B) --rounds $(ROUNDS) --only '$(T)' --level '$(LEVEL)' $(torch)

# PyTorch and what is measured beside it: some GB, so only where asked for.
.PHONY: rivals
rivals: $(B)/venv-rivals/ready ## a venv with PyTorch, Lightning and transformers, for bench and parity
$(B)/venv-rivals/ready: Makefile
	$(call say,VENV,$(B)/venv-rivals)
	$(Q)$(PYTHON) -m venv $(B)/venv-rivals && $(B)/venv-rivals/bin/pip install -q --disable-pip-version-check $(deps_rivals) && touch $@

.PHONY: parity
parity: $(B)/bin/traind-worker $(B)/lib/traind/accelerator-cpu.so ## losses, norms and weights against PyTorch (TORCH=python with torch; T= narrows)
	@$(PYTHON) tests/parity/parity.py --build $(B) --only '$(T)' $(torch)

# ---- the tree itself ------------------------------------------------------------------------------
c_files = $(shell git ls-files -co --exclude-standard '*.c' '*.cc' '*.h' '*.def')
# What strangers compile the installed headers with; their own flags may be as strict.
cxx_checks := 'g++ -std=c++11 -x c++' $(if $(shell command -v clang++),'clang++ -std=c++11 -x c++')
.PHONY: lint hdr-check format format-check
lint: hdr-check format-check $(B)/bin/traind ## layers, banned functions, formatting, headers, rows of tables, docs
	@$(PYTHON) tests/tools/lint.py --traind $(B)/bin/traind
hdr-check: $(gen_c) ## every header compiles alone, the installed ones in C11 and C++ too
	@for h in $(filter include/traind/%.h,$(c_files)); do for c in '$(CC) -std=c11 -Wstrict-prototypes -x c' $(cxx_checks); do \
	  printf '#include "%s"\n' $${h#include/} | $$c -Iinclude -Wall -Wextra -Wpedantic -Wshadow -Wundef $(werror) -fsyntax-only - || exit 1; \
	done; done
	@for h in $(filter %.h,$(c_files)); do \
	  printf '#include "%s"\n' $$h | $(CC) -std=c17 $(cpp) -Wall -Wextra $(werror) -fsyntax-only -x c - || exit 1; done
# Each version of clang-format breaks some lines its own way; the tree has the format of one.
format_version := 14
format_found = $(or $(shell clang-format --version 2>/dev/null | sed -n 's/.*version \([0-9]*\)\..*/\1/p'),no)
format: ## clang-format the tree
	@$(if $(filter $(format_version),$(format_found)),clang-format -i $(filter %.c %.cc %.h,$(c_files)), \
	  echo 'the tree is formatted by clang-format $(format_version), here is $(format_found): nothing done'; exit 1)
format-check:
	@$(if $(filter $(format_version),$(format_found)),clang-format --dry-run -Werror $(filter %.c %.cc %.h,$(c_files)), \
	  echo 'format: not checked, the tree is formatted by clang-format $(format_version), here is $(format_found)')

# ---- set-up, demo, install --------------------------------------------------------------------------
.PHONY: deps demo config man install install-built uninstall clean help
deps: ## install the Debian packages that are missing
	@tests/tools/deps.sh $(deps_build) $(deps_test) $(deps_data)
demo: deps ## train Fashion-MNIST through the whole system, from nothing
	@$(MAKE) all
	@examples/demo.sh $(B)
config: ## what was found here
	@printf 'compiler   %s\nbuild      %s\nflags      %s\n' '$(shell $(CC) --version | head -1)' '$(B)' '$(OPT) $(san)'
	@for p in grpc libprotobuf-c libevent sqlite3 yaml-0.1 jansson zlib libxxhash openssl smartcols hwloc; do \
	  printf '%-10s %s\n' $$p "$$($(pkg) --modversion $$p 2>/dev/null || echo missing)"; done
	@printf 'oneDNN     %s\n' '$(or $(dnnl_version),missing)'
	@printf 'CPU level  %s\n' "$$(env -i $(B)/bin/traind --state-dir=/ --dump-config 2>/dev/null | \
	  awk '$$1 == "cpu-level" {print $$2}' | grep . || echo 'shown after a build')"
man: all ## manual pages, from what the programs say of themselves
	@$(PYTHON) docs/man.py $(B) $(B)/man
# What is installed where, and written down for uninstall: deploy/install.sh.
put = PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)' VERSION='$(version)' deploy/install.sh
install: all man ## install under $(PREFIX): programs, library, headers, protos, units, examples, completions, manual pages
	$(put) all $(B)
install-built: # what `make` left in $(B), as it is, without what has to run to be made
	$(put) built $(B)
uninstall: ## remove from $(PREFIX) what install put there; plugins of others stay
	$(put) remove
.PHONY: deb
deb: all man ## packages traind, trainctl and libtraind-dev, in $(B)/deb (needs dpkg-dev and debhelper)
	@deploy/deb.sh $(B) $(version)
.PHONY: dist
dist: ## the sources of this commit as a tarball, with their version, in $(B)
	@deploy/dist.sh $(B) $(version)
clean: ## remove what was built
	rm -rf $(B) $(B)-asan $(B)-tsan $(B)-fuzz $(B)-clang $(B)-arm64
help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  %-12s %s\n", $$1, $$2}' Makefile

-include $(shell find $(B)/obj $(B)/tests -name '*.d' 2>/dev/null)
