-- How answers are found outside rounds, guidelines of classes, flags and comments, audits.

-- Answers: where an image was found, if not in its round; changes of many images at once share a batch.
ALTER TABLE event ADD COLUMN found_by TEXT CHECK (found_by IN ('gallery', 'hunt', 'review', 'duplicates', 'map'));
ALTER TABLE event ADD COLUMN batch TEXT CHECK (length(batch) BETWEEN 8 AND 64);
CREATE INDEX event_by_batch ON event (batch) WHERE batch IS NOT NULL;

-- Classes: guidelines, keys and example images. The table of their events is made again, as its check is wider.
ALTER TABLE class ADD COLUMN description TEXT NOT NULL DEFAULT '';
ALTER TABLE class ADD COLUMN hotkey TEXT CHECK (length(hotkey) = 1);
CREATE TABLE class_example (
    class_id INTEGER NOT NULL REFERENCES class (id),
    image_id INTEGER NOT NULL REFERENCES image (id),
    at INTEGER NOT NULL,
    PRIMARY KEY (class_id, image_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE class_event_wider (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL,
    class_id INTEGER NOT NULL REFERENCES class (id),
    what TEXT NOT NULL CHECK (what IN (
        'add', 'rename', 'retire', 'restore', 'describe', 'move', 'hotkey', 'add-example', 'remove-example'
    )),
    old TEXT,
    new TEXT
) STRICT;
INSERT INTO class_event_wider SELECT id, at, class_id, what, old, new FROM class_event;
DROP TRIGGER class_event_is_not_replaced;
DROP TRIGGER class_event_is_not_changed;
DROP TRIGGER class_event_is_not_deleted;
DROP TABLE class_event;
ALTER TABLE class_event_wider RENAME TO class_event;
CREATE TRIGGER class_event_is_not_replaced BEFORE INSERT ON class_event
WHEN EXISTS (SELECT 1 FROM class_event WHERE id = NEW.id)
BEGIN SELECT RAISE(ABORT, 'class events are added, never replaced'); END;
CREATE TRIGGER class_event_is_not_changed BEFORE UPDATE ON class_event
BEGIN SELECT RAISE(ABORT, 'class events are added, never changed'); END;
CREATE TRIGGER class_event_is_not_deleted BEFORE DELETE ON class_event
BEGIN SELECT RAISE(ABORT, 'class events are added, never deleted'); END;

-- Flags and comments on images, added and never changed; the last 'flag' or 'unflag' of an image counts.
CREATE TABLE note (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    key TEXT NOT NULL UNIQUE CHECK (length(key) BETWEEN 1 AND 64),
    image_id INTEGER NOT NULL REFERENCES image (id),
    annotator TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('flag', 'unflag', 'comment')),
    text TEXT NOT NULL DEFAULT '',
    at INTEGER NOT NULL
) STRICT;
CREATE INDEX note_by_image ON note (image_id, id);
CREATE TRIGGER note_is_not_replaced BEFORE INSERT ON note
WHEN EXISTS (SELECT 1 FROM note WHERE key = NEW.key OR id = NEW.id)
BEGIN SELECT RAISE(ABORT, 'notes are added, never replaced'); END;
CREATE TRIGGER note_is_not_changed BEFORE UPDATE ON note
BEGIN SELECT RAISE(ABORT, 'notes are added, never changed'); END;
CREATE TRIGGER note_is_not_deleted BEFORE DELETE ON note
BEGIN SELECT RAISE(ABORT, 'notes are added, never deleted'); END;

-- Audits: images of a round that were drawn at random. A series of draws goes through one random order of the images up
-- to last_image; many new images begin another series.
ALTER TABLE round_image ADD COLUMN audit INTEGER NOT NULL DEFAULT 0 CHECK (audit IN (0, 1));
CREATE TABLE audit_draw (
    round_id INTEGER PRIMARY KEY REFERENCES round (id),
    drawn INTEGER NOT NULL CHECK (drawn >= 1),
    population INTEGER NOT NULL CHECK (population >= drawn), -- images that could have been drawn
    last_image INTEGER NOT NULL REFERENCES image (id), -- of those that the series goes through
    at INTEGER NOT NULL
) STRICT;
