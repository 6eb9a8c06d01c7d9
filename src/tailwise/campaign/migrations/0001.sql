-- The ledger of a campaign. Times are microseconds since 1970, UTC. Counts are derived, never stored.

CREATE TABLE meta (
    key TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT;

CREATE TABLE folder (
    id INTEGER PRIMARY KEY,
    path TEXT NOT NULL UNIQUE -- absolute, links resolved
) STRICT;

CREATE TABLE image (
    id INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE, -- random; the only name that leaves the machine
    folder_id INTEGER NOT NULL REFERENCES folder (id),
    path TEXT NOT NULL, -- below the folder, with /
    sha256 TEXT, -- of the bytes that the labels speak of; NULL where they were never read
    bytes INTEGER,
    mtime_ns INTEGER,
    ctime_ns INTEGER, -- a rename leaves size and mtime as they are, and changes this
    width INTEGER, -- of the upright image
    height INTEGER,
    orientation INTEGER,
    duplicate_of INTEGER REFERENCES image (id), -- the first image with the same bytes
    trouble TEXT, -- why it is in quarantine
    added_at INTEGER NOT NULL,
    UNIQUE (folder_id, path)
) STRICT;
CREATE INDEX image_by_sha256 ON image (sha256);
CREATE INDEX image_by_original ON image (duplicate_of) WHERE duplicate_of IS NOT NULL;

CREATE TABLE class (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    position INTEGER NOT NULL,
    added_at INTEGER NOT NULL,
    retired_at INTEGER
) STRICT;

CREATE TABLE class_event (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL,
    class_id INTEGER NOT NULL REFERENCES class (id),
    what TEXT NOT NULL CHECK (what IN ('add', 'rename', 'retire', 'restore')),
    old TEXT,
    new TEXT
) STRICT;

CREATE TABLE model (
    version TEXT PRIMARY KEY,
    at INTEGER NOT NULL,
    learner TEXT NOT NULL,
    settings TEXT NOT NULL, -- JSON
    labels INTEGER NOT NULL,
    class_ids TEXT NOT NULL, -- JSON; the order of the model's columns
    summary TEXT NOT NULL -- JSON
) STRICT;

CREATE TABLE round (
    id INTEGER PRIMARY KEY, -- its number, from 1
    opened_at INTEGER NOT NULL,
    closed_at INTEGER,
    budget INTEGER NOT NULL,
    strategy TEXT NOT NULL,
    balance TEXT NOT NULL,
    seed INTEGER NOT NULL,
    model_version TEXT REFERENCES model (version),
    why TEXT NOT NULL -- JSON
) STRICT;
CREATE UNIQUE INDEX one_open_round ON round (closed_at IS NULL) WHERE closed_at IS NULL;

CREATE TABLE round_image (
    round_id INTEGER NOT NULL REFERENCES round (id),
    image_id INTEGER NOT NULL REFERENCES image (id),
    rank INTEGER NOT NULL,
    predicted INTEGER REFERENCES class (id),
    confidence REAL,
    wanted INTEGER NOT NULL DEFAULT 1 CHECK (wanted >= 1), -- answers, by as many people
    PRIMARY KEY (round_id, image_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX round_image_by_rank ON round_image (round_id, rank);
CREATE INDEX round_image_by_image ON round_image (image_id);

CREATE TABLE event (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    key TEXT NOT NULL UNIQUE CHECK (length(key) BETWEEN 1 AND 64), -- made by whoever answers: twice is once
    image_id INTEGER NOT NULL REFERENCES image (id),
    annotator TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('label', 'other', 'skip', 'undo', 'settle-label', 'settle-other')),
    class_id INTEGER REFERENCES class (id),
    undoes INTEGER REFERENCES event (id), -- of an answer: the undo that it takes back by saying the answer again
    at INTEGER NOT NULL,
    round_id INTEGER REFERENCES round (id),
    model_version TEXT REFERENCES model (version),
    source TEXT NOT NULL CHECK (source IN ('page', 'api', 'import', 'cli')),
    seconds REAL,
    CHECK ((kind IN ('label', 'settle-label')) = (class_id IS NOT NULL)),
    CHECK (kind <> 'undo' OR undoes IS NOT NULL)
) STRICT;
CREATE INDEX event_by_image ON event (image_id, annotator, id);
CREATE INDEX event_by_annotator ON event (annotator, id);
CREATE INDEX event_by_undone ON event (undoes) WHERE undoes IS NOT NULL;
CREATE INDEX event_by_decision ON event (image_id, id) WHERE kind IN ('settle-label', 'settle-other');

CREATE TABLE lease (
    image_id INTEGER NOT NULL REFERENCES image (id),
    annotator TEXT NOT NULL,
    until INTEGER NOT NULL,
    PRIMARY KEY (image_id, annotator)
) STRICT, WITHOUT ROWID;

-- What was said stays said. REPLACE deletes without a trigger, hence the check before an insert.
CREATE TRIGGER event_is_not_replaced BEFORE INSERT ON event
WHEN EXISTS (SELECT 1 FROM event WHERE key = NEW.key OR id = NEW.id)
BEGIN SELECT RAISE(ABORT, 'events are added, never replaced'); END;
CREATE TRIGGER event_is_not_changed BEFORE UPDATE ON event
BEGIN SELECT RAISE(ABORT, 'events are added, never changed'); END;
CREATE TRIGGER event_is_not_deleted BEFORE DELETE ON event
BEGIN SELECT RAISE(ABORT, 'events are added, never deleted'); END;
CREATE TRIGGER class_event_is_not_replaced BEFORE INSERT ON class_event
WHEN EXISTS (SELECT 1 FROM class_event WHERE id = NEW.id)
BEGIN SELECT RAISE(ABORT, 'class events are added, never replaced'); END;
CREATE TRIGGER class_event_is_not_changed BEFORE UPDATE ON class_event
BEGIN SELECT RAISE(ABORT, 'class events are added, never changed'); END;
CREATE TRIGGER class_event_is_not_deleted BEFORE DELETE ON class_event
BEGIN SELECT RAISE(ABORT, 'class events are added, never deleted'); END;

-- Events that nobody has taken back. Later means a higher id: clocks jump.
CREATE VIEW standing AS
SELECT e.* FROM event AS e
WHERE e.kind <> 'undo' AND NOT EXISTS (SELECT 1 FROM event AS u WHERE u.undoes = e.id AND u.kind = 'undo');

-- The last standing answer of each person to each image.
CREATE VIEW answer AS
SELECT s.id AS event_id, s.key, s.image_id, s.annotator, s.kind, s.class_id, s.at, s.round_id, s.model_version,
    s.source, s.seconds
FROM standing AS s
WHERE s.kind IN ('label', 'other', 'skip') AND NOT EXISTS (
    SELECT 1 FROM standing AS l
    WHERE l.image_id = s.image_id AND l.annotator = s.annotator AND l.id > s.id AND l.kind IN ('label', 'other', 'skip')
);

-- The last standing decision about each image whose answers differed.
CREATE VIEW settled AS
SELECT s.id AS event_id, s.key, s.image_id, s.annotator, s.kind, s.class_id, s.at
FROM standing AS s
WHERE s.kind IN ('settle-label', 'settle-other') AND NOT EXISTS (
    SELECT 1 FROM standing AS l
    WHERE l.image_id = s.image_id AND l.id > s.id AND l.kind IN ('settle-label', 'settle-other')
);

-- What people think of each image that has answers.
CREATE VIEW opinion AS
SELECT a.image_id, sum(a.kind = 'label') AS labels, sum(a.kind = 'other') AS others, sum(a.kind = 'skip') AS skips,
    min(a.class_id) AS lowest, max(a.class_id) AS highest
FROM answer AS a GROUP BY a.image_id;

-- What came of it: 'settled' or 'agreed' with a class, 'other', 'skipped', or 'conflict'.
CREATE VIEW verdict AS
SELECT image_id, class_id, iif(kind = 'settle-label', 'settled', 'other') AS outcome FROM settled
UNION ALL
SELECT o.image_id, iif(o.others = 0 AND o.lowest = o.highest, o.lowest, NULL) AS class_id,
    CASE
        WHEN o.labels = 0 AND o.others = 0 THEN 'skipped'
        WHEN o.labels = 0 THEN 'other'
        WHEN o.others = 0 AND o.lowest = o.highest THEN 'agreed'
        ELSE 'conflict'
    END AS outcome
FROM opinion AS o
WHERE NOT EXISTS (SELECT 1 FROM settled AS s WHERE s.image_id = o.image_id);

CREATE VIEW current_label AS
SELECT image_id, class_id, outcome AS decided FROM verdict WHERE outcome IN ('settled', 'agreed');

CREATE VIEW conflict AS SELECT image_id FROM verdict WHERE outcome = 'conflict';
