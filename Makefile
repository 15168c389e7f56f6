# Thin on purpose: dev.py does the work, and works without make.
# Further arguments: make test ARGS="-k lease"

PYTHON ?= python3
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help run test lint bench cluster versions chaos soak celery deploy docs browser mutants check setup

help:
	@$(PYTHON) dev.py help

run test lint bench cluster versions soak celery deploy docs browser mutants check setup:
	@$(PYTHON) dev.py $@ $(ARGS)

# make chaos SEED=7 MINUTES=5
chaos:
	@$(PYTHON) dev.py chaos $(if $(SEED),--seed $(SEED)) $(if $(MINUTES),--minutes $(MINUTES)) $(ARGS)
