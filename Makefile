# Thin on purpose: dev.py does the work, and works without make.
# Further arguments: make test ARGS="-k lease"

PYTHON ?= python3
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help run test lint bench chaos celery browser mutants check setup

help:
	@$(PYTHON) dev.py help

run test lint bench chaos celery browser mutants check setup:
	@$(PYTHON) dev.py $@ $(ARGS)
