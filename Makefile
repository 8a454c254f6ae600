# Needs Go, git and make. Tools are pinned in tools/*/go.mod and built by Go itself: nothing to install.
SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
REVISION ?= $(shell git rev-parse --verify -q HEAD 2>/dev/null || echo unknown)
# Reproducible builds: every timestamp is the commit's (https://reproducible-builds.org/specs/source-date-epoch/).
export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 0)

BIN      := bin
GOBUILD  := CGO_ENABLED=0 go build -trimpath -ldflags '-s -w -X main.version=$(VERSION)'
GOLANGCI  = go tool -modfile=$(CURDIR)/tools/golangci-lint/go.mod golangci-lint

ARCH      ?= $(shell go env GOARCH)
IMAGE     ?= ipamaudit:$(VERSION)
CA_BUNDLE ?= /etc/ssl/certs/ca-certificates.crt
FUZZTIME  ?= 10s
SEED      ?= 1
E2E_TIMEOUT ?= 40m
E2E_FLAGS   ?=
PART ?= 1
SOAK_STEPS  ?= 1000000

.PHONY: help
help: ## Show this help
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)


.PHONY: build
build: ## Build bin/ipamaudit (static, reproducible)
	$(GOBUILD) -o $(BIN)/ipamaudit ./cmd/ipamaudit

.PHONY: demo
demo: build ## Audit embedded real data; show the tickets and the digest that would be sent
	go run ./fixtures/demo

.PHONY: image
image: ## Build the container image as a tar, without a Docker daemon (ARCH=amd64|arm64 IMAGE=name:tag)
	GOOS=linux GOARCH=$(ARCH) $(GOBUILD) -o $(BIN)/linux-$(ARCH)/ipamaudit ./cmd/ipamaudit
	go run ./deploy/image -binary $(BIN)/linux-$(ARCH)/ipamaudit -arch $(ARCH) -ca-bundle $(CA_BUNDLE) \
		-image $(IMAGE) -version $(VERSION) -revision $(REVISION) -o $(BIN)/ipamaudit-linux-$(ARCH).tar


.PHONY: test
test: ## Run the unit tests
	go test ./...

.PHONY: soak
soak: ## A million steps of tickets, 25,000 made-up clusters, 50 audits of a churning one (SEED=n begins elsewhere)
	go test ./fixtures/generate -count 1 -v -timeout 2h -healthy 20000 -faulty 5000 -seed $(SEED)
	IPAMAUDIT_SOAK_STEPS=$(SOAK_STEPS) go test ./notify -run '^TestHistories$$' -v -count 1 -timeout 0
	cd test && IPAMAUDIT_CHURN_RUNS=50 go test -count=1 -timeout 60m -v -run TestChurn ./e2e

.PHONY: test-race
test-race: ## Run the unit tests under the race detector (needs a C compiler)
	CGO_ENABLED=1 go test -race -short -timeout 30m $$(go list ./... | grep -v /fixtures/generate)

.PHONY: test-e2e
test-e2e: ## Run the end-to-end tests against real API servers (a Go module of its own in test/)
	cd test && go test -timeout $(E2E_TIMEOUT) $(E2E_FLAGS) ./...

.PHONY: lint
lint: ## Run golangci-lint
	$(GOLANGCI) run ./...
	cd test && $(GOLANGCI) run --config $(CURDIR)/.golangci.yml ./...

.PHONY: fmt
fmt: ## Format the code and its imports
	$(GOLANGCI) fmt ./...

.PHONY: vet
vet: ## Run go vet
	go vet ./...
	cd test && go vet ./...

.PHONY: bench
bench: scale ## Everything that docs/performance.md tells: a large cluster on a real API server, then the benchmarks
	go test -run '^$$' -bench . -benchmem ./...

.PHONY: scale
scale: ## Audit 1/PART of 5,000 nodes, 20,000 blocks and 100,000 pods on a real API server (PART=1)
	cd test && go run ./cmd/scale -part $(PART)

.PHONY: fuzz-short
fuzz-short: ## Run every fuzz test for FUZZTIME (10s)
	@grep -rHo --include='*_test.go' --exclude-dir=test '^func Fuzz[A-Za-z0-9_]*' . | sort | while IFS=: read -r file func; do \
		go test -run '^$$' -fuzz "^$${func#func }$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x "$$(dirname "$$file")" </dev/null; \
	done


.PHONY: generate
generate: ## Regenerate everything that is generated (ClusterRole, docs, schema)
	go run ./docs/gen
	go generate ./...

.PHONY: verify-generated
verify-generated: generate ## Fail if a generated file is not what is committed
	@git diff --exit-code || { echo >&2 'Generated files are stale: run "make generate" and commit the result.'; exit 1; }
	@new=$$(git ls-files --others --exclude-standard); test -z "$$new" || { echo >&2 "Generated or forgotten files are not committed:"; echo >&2 "$$new"; exit 1; }

.PHONY: clean
clean: ## Remove what was built
	rm -rf $(BIN)
