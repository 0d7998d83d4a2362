-- What alembic executed when it made the tables of versions 1, 2 and 3.
CREATE TABLE inferlab_version (
  version_num VARCHAR(32) NOT NULL,
  CONSTRAINT inferlab_version_pkc PRIMARY KEY (version_num)
);
CREATE TABLE entry (
  id VARCHAR(10) NOT NULL,
  created_at VARCHAR(27) NOT NULL,
  kind TEXT NOT NULL,
  title TEXT NOT NULL,
  model_digest TEXT NOT NULL,
  inferlab_version TEXT NOT NULL,
  node TEXT NOT NULL,
  note TEXT NOT NULL,
  content TEXT NOT NULL,
  PRIMARY KEY (id)
);
CREATE INDEX entry_by_time ON entry (created_at, id);
CREATE TABLE cell (
  "row" INTEGER NOT NULL,
  entry_id VARCHAR(10) NOT NULL,
  position INTEGER NOT NULL,
  cell_id TEXT NOT NULL,
  engine TEXT NOT NULL,
  status TEXT NOT NULL,
  failure TEXT,
  cached_items_per_sec FLOAT,
  cached_items_per_sec_low FLOAT,
  cached_items_per_sec_high FLOAT,
  cached_median_ms FLOAT,
  cached_median_ms_low FLOAT,
  cached_median_ms_high FLOAT,
  content TEXT NOT NULL,
  PRIMARY KEY ("row"),
  FOREIGN KEY(entry_id) REFERENCES entry (id) ON DELETE CASCADE
);
CREATE UNIQUE INDEX cell_by_entry ON cell (entry_id, position);
CREATE TABLE run (
  "row" INTEGER NOT NULL,
  cell_row INTEGER NOT NULL,
  position INTEGER NOT NULL,
  started_at TEXT NOT NULL,
  content TEXT NOT NULL,
  samples BLOB NOT NULL,
  PRIMARY KEY ("row"),
  FOREIGN KEY(cell_row) REFERENCES cell ("row") ON DELETE CASCADE
);
CREATE UNIQUE INDEX run_by_cell ON run (cell_row, position);
INSERT INTO inferlab_version (version_num) VALUES ('0001');
ALTER TABLE cell ADD COLUMN cached_wrong BOOLEAN;
UPDATE inferlab_version SET version_num='0002' WHERE inferlab_version.version_num = '0001';
CREATE TABLE project (
  id VARCHAR(10) NOT NULL,
  created_at VARCHAR(27) NOT NULL,
  changed_at VARCHAR(27) NOT NULL,
  name TEXT NOT NULL,
  description TEXT NOT NULL,
  model_digest TEXT NOT NULL,
  content TEXT NOT NULL,
  PRIMARY KEY (id)
);
CREATE TABLE job (
  id VARCHAR(10) NOT NULL,
  created_at VARCHAR(27) NOT NULL,
  queued_at VARCHAR(27) NOT NULL,
  started_at VARCHAR(27),
  ended_at VARCHAR(27),
  project_id VARCHAR(10),
  entry_id VARCHAR(10),
  node TEXT NOT NULL,
  kind TEXT NOT NULL,
  status TEXT NOT NULL,
  cancel BOOLEAN NOT NULL,
  stage TEXT NOT NULL,
  fraction FLOAT,
  left_s FLOAT,
  failure TEXT NOT NULL,
  log TEXT NOT NULL,
  content TEXT NOT NULL,
  PRIMARY KEY (id)
);
CREATE INDEX job_by_status ON job (status, queued_at);
CREATE INDEX job_by_entry ON job (entry_id);
ALTER TABLE entry ADD COLUMN project_id VARCHAR(10);
ALTER TABLE entry ADD COLUMN brief TEXT DEFAULT '' NOT NULL;
CREATE INDEX entry_by_project ON entry (project_id, created_at, id);
CREATE INDEX entry_by_model ON entry (model_digest, created_at, id);
UPDATE inferlab_version SET version_num='0003' WHERE inferlab_version.version_num = '0002';
