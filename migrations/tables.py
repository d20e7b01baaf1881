"""The tables of a store, which `migrations.py` makes in a file and `postgres.py` in a database.

A script that has been released is never edited, comments included: a file has it as it stands here.
`docs/format.md` explains the tables.
"""

VERSIONS_AND_EVENTS = """
create table versions (
    number   integer primary key,            -- v12; local to this file
    digest   blob not null unique,           -- valid in every clone
    parent   integer references versions,
    merged   integer references versions,
    position integer not null,               -- row of the last event it holds
    events   integer not null,               -- how many of its own
    author   text not null,
    time     integer not null,               -- microseconds since 1970, UTC
    message  text not null,
    meta     text,                           -- canonical JSON
    schema   integer not null
);
create index versions_position on versions (position);

create table events (
    row        integer primary key,          -- lane << 40 | place in the lane
    op         text not null check (op in ('ADD', 'MODIFY', 'DELETE', 'KEEP')),
    experience text not null,
    text       text,
    reason     text,
    evidence   text,                         -- canonical JSON
    replaces   integer,                      -- the event this one follows on
    birth      integer,                      -- the experience's first ADD, unless it is this one
    seal       blob,                         -- sha256(salt, [text, reason])
    salt       blob,
    schema     integer not null
);
create index events_experience on events (experience);

create table lanes (
    lane integer primary key,
    base integer not null                    -- the row at which it leaves an earlier lane
);
insert into lanes values (0, 0);

create table snapshots (                     -- derived: drop them all and nothing changes
    position integer primary key,
    live     blob not null                   -- rows of the live events, ascending
);
"""

REFS = """
create table reflog (
    row             integer primary key,
    batch           integer not null,        -- the first row of the operation it belongs to
    name            text not null,           -- HEAD, heads/<branch>, tags/<tag>
    version         integer references versions,
    symbol          text,                    -- HEAD on a branch: the name it follows
    previous        integer references versions,
    previous_symbol text,
    author          text not null,
    time            integer not null,
    action          text not null
);
create index reflog_name on reflog (name);

create table redactions (
    row    integer primary key,
    event  integer not null references events,
    author text not null,
    time   integer not null,
    reason text not null
);
"""

TRAINING = """
create table texts (                         -- what is written once and pointed at often
    id     integer primary key,
    digest blob not null unique,
    text   text not null
);

create table runs (
    id     integer primary key,
    name   text not null unique,
    uid    text not null unique,             -- names the run's experiences and its calls
    branch text not null,
    base   integer not null references versions,
    digest text not null,                    -- of what was asked for: data and settings
    config text not null,
    author text not null,
    time   integer not null
);

create table run_states (
    row    integer primary key,
    run    integer not null references runs,
    state  text not null,
    detail text,
    time   integer not null
);
create index run_states_run on run_states (run);

create table journal (
    id                integer primary key,
    key               blob not null unique,  -- scope, stage, request and sample index
    run               integer references runs,
    stage             text not null,
    step              integer,
    model             text not null,
    request           integer not null references texts,
    answer            text not null,         -- JSON: content, finish_reason, ...
    prompt_tokens     integer not null,
    cached_tokens     integer not null,
    completion_tokens integer not null,
    reasoning_tokens  integer not null,
    attempts          integer not null,
    seconds           real not null,
    time              integer not null
);
create index journal_run on journal (run, stage);

create table rollouts (
    id       integer primary key,
    run      integer not null references runs,
    step     integer not null,
    problem  text not null,
    sample   integer not null,
    version  integer not null references versions,
    calls    text not null,                  -- JSON: journal keys, in order
    outcome  text not null,                  -- answered, truncated, failed, unverifiable
    reward   real,
    verdict  text not null,                  -- JSON: extracted answer, reason
    time     integer not null,
    unique (run, step, problem, sample)
);

create table evaluations (
    id      integer primary key,
    version integer not null references versions,
    dataset text not null,
    digest  text not null,                   -- of problems, model, prompt and sampling
    config  text not null,
    summary text not null,
    time    integer not null,
    unique (version, digest)
);

create table scores (
    evaluation integer not null references evaluations,
    problem    text not null,
    sample     integer not null,
    call       blob,                         -- journal key
    reward     real,
    answer     text,                         -- as extracted, for maj@k
    primary key (evaluation, problem, sample)
) without rowid;
"""

REMOTES = """
create table remotes (
    name     text primary key,
    location text not null                   -- a path, ssh://host/path or host:path
);
"""

DECISIONS = """
create table decisions (
    row     integer primary key,
    id      text not null unique,
    time    integer not null,
    author  text not null,
    kind    text not null,                   -- experiment, rollback, redaction, ...
    subject text not null,                   -- what it is about: a name, or another decision's id
    content text not null,                   -- canonical JSON: the evidence
    why     text
);
create index decisions_subject on decisions (kind, subject);
"""

INDEXES = """
create index reflog_standing on reflog (version) where name > 'heads0';
"""

MERGES = """
create index versions_merged on versions (position) where merged is not null;
"""

ALL = VERSIONS_AND_EVENTS + REFS + TRAINING + REMOTES + INDEXES + DECISIONS + MERGES
