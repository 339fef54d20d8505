-- schema.sql - what survives a restart; version 10 (user_version), becomes schema_sql.h in the build
--
-- Times are wall ns (0: not yet), numbers from outside are unsigned 64 bit kept in a signed column. STRICT and NOT NULL make
-- a damaged value visible to the check at open. Rows are found by rowid in every table, so that --recover can step over a bad page.

CREATE TABLE meta (
    key    TEXT NOT NULL UNIQUE,            -- id, epoch, made, floor_mark ... floor_crash, brake_online, brake_async, slurm
    value  TEXT NOT NULL
) STRICT;

-- Never pruned, never changed: who did what to which node, when and why. seq never comes twice.
CREATE TABLE event (
    seq     INTEGER PRIMARY KEY AUTOINCREMENT,
    time    INTEGER NOT NULL,
    node    TEXT,
    who     TEXT,
    what    TEXT NOT NULL,
    before  TEXT,
    after   TEXT,
    reason  TEXT
) STRICT;
CREATE INDEX event_node ON event (node, seq);

CREATE TABLE node (
    name         TEXT NOT NULL UNIQUE,
    class        TEXT NOT NULL,
    pool         TEXT NOT NULL,
    wanted_pool  TEXT,
    added        INTEGER NOT NULL,
    retired      INTEGER NOT NULL,
    shm_wanted   INTEGER NOT NULL,
    nice_wanted  INTEGER NOT NULL
) STRICT;

-- A mark hangs on the node's name, not on its row: nothing that happens to the node takes it along.
CREATE TABLE mark (
    id            INTEGER PRIMARY KEY,
    node          TEXT NOT NULL,
    part          TEXT,
    owner_kind    TEXT,
    owner         TEXT,
    class         TEXT,
    severity      TEXT,
    reason        TEXT,
    evidence      TEXT,
    created       INTEGER NOT NULL,
    until         INTEGER NOT NULL,
    cleared       INTEGER NOT NULL,
    cleared_by    TEXT,
    clear_reason  TEXT
) STRICT;
CREATE INDEX mark_open ON mark (id) WHERE cleared = 0;

CREATE TABLE move (
    id            INTEGER PRIMARY KEY,
    node          TEXT NOT NULL,
    "to"          TEXT NOT NULL,
    "when"        TEXT,
    state         TEXT NOT NULL,
    requested_by  TEXT,
    text          TEXT,
    at            INTEGER NOT NULL,
    deadline      INTEGER NOT NULL,
    created       INTEGER NOT NULL,
    ended         INTEGER NOT NULL
) STRICT;
CREATE INDEX move_open ON move (id) WHERE ended = 0;

CREATE TABLE run (
    id               INTEGER PRIMARY KEY,
    name             TEXT,
    state            TEXT NOT NULL,
    workflow         TEXT,
    backends         TEXT,
    options          TEXT,
    policy           TEXT,
    keep             TEXT,
    incomplete_rule  TEXT,
    output           TEXT,
    owner            TEXT,
    text             TEXT,
    sources          INTEGER NOT NULL,
    min_nodes        INTEGER NOT NULL,
    in_flight        INTEGER NOT NULL,
    key              BLOB NOT NULL,
    announced        INTEGER NOT NULL,
    dispatched       INTEGER NOT NULL,
    done             INTEGER NOT NULL,
    failed           INTEGER NOT NULL,
    dropped          INTEGER NOT NULL,
    lost             INTEGER NOT NULL,
    incomplete       INTEGER NOT NULL,
    bytes_done       INTEGER NOT NULL,
    dropped_by       TEXT,
    started          INTEGER NOT NULL,
    ended            INTEGER NOT NULL,
    stages           TEXT,                  -- "STAGE=BACKEND TFS FALLBACKS!REASON" a line
    nice             INTEGER NOT NULL,      -- its own level, 100: the pool's,
    nice_min         INTEGER NOT NULL,      -- within what the rules allowed its owner
    nice_max         INTEGER NOT NULL
) STRICT;
CREATE INDEX run_open ON run (id) WHERE ended = 0;

-- Pruned by count; what was pruned stays counted in run_pruned, so that totals can be checked for ever.
CREATE TABLE run_tf (
    run         INTEGER NOT NULL,
    tf          INTEGER NOT NULL,
    outcome     TEXT NOT NULL,
    reason      TEXT,                       -- WORD, or "WORD: TEXT"
    node        TEXT,
    device      TEXT,
    digest      TEXT,
    stem        TEXT,
    epoch       INTEGER NOT NULL,
    attempt     INTEGER NOT NULL,
    incomplete  INTEGER NOT NULL,
    published   INTEGER NOT NULL,
    seconds     REAL NOT NULL,
    bytes       INTEGER NOT NULL,
    time        INTEGER NOT NULL,
    stages      TEXT,                       -- "STAGE=BACKEND!WHY AUTO FELL BACK" a line
    UNIQUE (run, tf)
) STRICT;

CREATE TABLE run_pruned (
    run         INTEGER NOT NULL,
    outcome     TEXT NOT NULL,
    rows        INTEGER NOT NULL,
    incomplete  INTEGER NOT NULL,
    bytes       INTEGER NOT NULL,
    UNIQUE (run, outcome)
) STRICT;

CREATE TABLE job (
    id          INTEGER PRIMARY KEY,
    name        TEXT,
    owner       TEXT,
    key         TEXT,
    state       TEXT NOT NULL,
    workflow    TEXT,
    backends    TEXT,
    options     TEXT,
    output      TEXT,
    text        TEXT,
    classes     TEXT,
    uid         INTEGER NOT NULL,
    gid         INTEGER NOT NULL,
    priority    INTEGER NOT NULL,
    attempts    INTEGER NOT NULL,
    time_limit  REAL NOT NULL,
    tasks       INTEGER NOT NULL,
    done        INTEGER NOT NULL,
    failed      INTEGER NOT NULL,
    skipped     INTEGER NOT NULL,
    cancelled   INTEGER NOT NULL,
    retried     INTEGER NOT NULL,
    submitted   INTEGER NOT NULL,
    begin       INTEGER NOT NULL,
    ended       INTEGER NOT NULL,
    stages      TEXT,                       -- as in run
    nice        INTEGER NOT NULL,           -- as of a run
    nice_min    INTEGER NOT NULL,
    nice_max    INTEGER NOT NULL,
    preempted   INTEGER NOT NULL DEFAULT 0, -- tries that were given up for a node that was called away
    straggler   REAL NOT NULL DEFAULT 0,    -- of its last TFs, what takes so many times the median starts a second time; 0: nothing does
    after       TEXT,                       -- "ok:ID", "any:ID", "notok:ID": not before that job's end
    reruns      INTEGER NOT NULL DEFAULT 0, -- how often all of it was asked for again: results of each have names of their own
    begun       INTEGER NOT NULL DEFAULT 0, -- what it was to wait for (its time, a job) has come
    pruned      INTEGER NOT NULL DEFAULT 0, -- its files, tasks and tries are removed: 1 being done, 2 done
    unpublished INTEGER NOT NULL DEFAULT 0, -- it is over, and results that were accepted may not be published yet
    failures    TEXT,                       -- tries that failed, by code: "WORD N,WORD N"
    folder      TEXT,                       -- where its output lies, all links followed, as a worker saw it at submit
    unswept     INTEGER NOT NULL DEFAULT 0  -- tries of it that never came to an end may have left half results there
) STRICT;
CREATE INDEX job_open ON job (id) WHERE ended = 0;
CREATE INDEX job_pruning ON job (id) WHERE pruned = 1;
CREATE INDEX job_key ON job (key, uid) WHERE key IS NOT NULL;

CREATE TABLE job_file (
    job         INTEGER NOT NULL,
    number      INTEGER NOT NULL,
    path        TEXT NOT NULL,
    first_task  INTEGER NOT NULL,
    tfs         INTEGER NOT NULL,
    extents     BLOB,
    text        TEXT,
    UNIQUE (job, number)
) STRICT;

CREATE TABLE task (
    job        INTEGER NOT NULL,
    number     INTEGER NOT NULL,
    state      TEXT NOT NULL,
    node       TEXT,
    device     TEXT,
    code       TEXT,
    text       TEXT,
    digest     TEXT,
    stem       TEXT,
    epoch      INTEGER NOT NULL,
    attempt    INTEGER NOT NULL,
    published  INTEGER NOT NULL,
    seconds    REAL NOT NULL,
    time       INTEGER NOT NULL,
    tries      INTEGER NOT NULL DEFAULT 0,  -- that failed
    deaths     TEXT,                        -- nodes on which a process died of it: "n1,n2"
    due        INTEGER NOT NULL DEFAULT 0,  -- of one that waits: not before
    log        TEXT,                        -- what the reconstruction process printed
    UNIQUE (job, number)
) STRICT;

-- Tries that others came after; the last one of a task is its row above.
CREATE TABLE attempt (
    job      INTEGER NOT NULL,
    number   INTEGER NOT NULL,
    attempt  INTEGER NOT NULL,
    epoch    INTEGER NOT NULL,
    state    TEXT NOT NULL,
    node     TEXT,
    device   TEXT,
    code     TEXT,
    text     TEXT,
    digest   TEXT,
    stem     TEXT,
    seconds  REAL NOT NULL,
    time     INTEGER NOT NULL,
    log      TEXT,
    UNIQUE (job, number, attempt)
) STRICT;

CREATE TABLE crash (
    id        INTEGER PRIMARY KEY,
    time      INTEGER NOT NULL,
    node      TEXT,
    device    TEXT,
    word      TEXT,
    text      TEXT,
    folder    TEXT,
    workflow  TEXT,
    run       INTEGER NOT NULL,
    job       INTEGER NOT NULL,
    tf        INTEGER NOT NULL,
    bytes     INTEGER NOT NULL,
    attempt   INTEGER NOT NULL,
    purged    INTEGER NOT NULL
) STRICT;

-- Devices that were seen on a node, so that one that is missing, or has another serial, is found after a restart too.
CREATE TABLE known_device (
    node       TEXT NOT NULL,
    serial     TEXT NOT NULL,
    place      INTEGER NOT NULL,            -- in the worker's list, when it was seen first
    seen       INTEGER NOT NULL,            -- then
    forgotten  INTEGER NOT NULL,            -- replaced, or a person said that it is gone for good
    UNIQUE (node, serial)
) STRICT;

-- The kernel's boot id that a node registered with last, so that a new start of its machine is seen after a restart too.
CREATE TABLE known_boot (
    node       TEXT NOT NULL UNIQUE,
    boot       TEXT NOT NULL
) STRICT;
