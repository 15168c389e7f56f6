-- Fan-out: what a failed cell means for the others. NULL = they continue. 'stopping' marks a live
-- parent whose other cells are about to be ended.
ALTER TABLE jobs ADD COLUMN on_cell_failure TEXT;

CREATE INDEX jobs_stopping ON jobs (id) WHERE on_cell_failure = 'stopping';
