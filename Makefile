# The commands people type; scripts/check holds the steps of "make test". `make help` lists all.
.DEFAULT_GOAL := help
.PHONY: help demo build test bench fuzz format tidy install clean

PRESET ?= cpu-release
FUZZ_SECONDS ?= 600
PREFIX ?= /usr/local

help: ## this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-8s %s\n", $$1, $$2}'

demo: ## set everything up and run the demo: real sentences, a long document, masks drawn
	@scripts/setup --build --models
	@cmake --preset demo > /dev/null
	@cmake --build --preset demo
	@build/demo/cli/stof demo

build: ## build the library, the program, the tests and the benchmarks (PRESET=cpu-release)
	@scripts/setup --build --test
	@cmake --preset $(PRESET)
	@cmake --build --preset $(PRESET)

test: ## set everything up and run every check and test
	@scripts/setup
	@scripts/check

bench: ## run the CPU benchmarks; results are appended to bench/results/cpu.jsonl
	@scripts/setup --build --test --models
	@cmake --preset cpu-release > /dev/null
	@cmake --build --preset cpu-release
	@set -e; for program in build/cpu-release/bench/bench_*; do \
	  if [ -x "$$program" ]; then echo "== $$program"; "$$program" --jsonl=bench/results/cpu.jsonl; fi; done

fuzz: ## run each fuzzer for FUZZ_SECONDS (600), keeping what it learns under build/
	@scripts/setup --build --test
	@scripts/fuzz $(FUZZ_SECONDS)

format: ## format all C++ files in place
	@scripts/format

tidy: ## run clang-tidy on the library and the program
	@scripts/setup --build --test
	@scripts/tidy

install: ## install the library and the program under PREFIX (/usr/local)
	@scripts/setup --build
	@cmake --preset demo > /dev/null
	@cmake --build --preset demo
	@cmake --install build/demo --prefix $(PREFIX)

clean: ## remove everything built here (not the cache folder of scripts/setup)
	@rm -rf build
