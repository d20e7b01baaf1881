"""The history of the schema in PostgreSQL: the same tables as in a file, one schema a library.

A migration that has been released is never edited. `@` stands for the library's schema, quoted.
What only a database needs is beside the tables: who wrote a row (`recorded_by`), the
transaction that wrote it (`tx`), and functions with which a redaction changes what no role may
update. `docs/format.md` explains the tables.
"""

from __future__ import annotations

APPEND_ONLY = ("versions", "lanes", "reflog", "redactions", "runs", "run_states")
"""The tables of which nothing is ever changed; `events` and `decisions` know of redaction."""

TABLES = """
create table @.migrations (
    number integer primary key,
    time   timestamptz not null default now()
);

create table @.members (                     -- who may do what: `tfgrpo store grant`
    name  text collate "C" primary key,      -- a role of the database
    level text not null check (level in ('reader', 'trainer', 'reviewer', 'owner'))
);

create table @.versions (
    number   bigint primary key,
    digest   bytea not null unique,
    parent   bigint references @.versions,
    merged   bigint references @.versions,
    position bigint not null,
    events   bigint not null,
    author   text collate "C" not null,
    time     bigint not null,
    message  text collate "C" not null,
    meta     text collate "C",
    schema   bigint not null,
    recorded_by text not null default session_user
);
create index versions_position on @.versions (position);
create index versions_merged on @.versions (position) where merged is not null;

create table @.events (
    row        bigint primary key,
    op         text collate "C" not null check (op in ('ADD', 'MODIFY', 'DELETE', 'KEEP')),
    experience text collate "C" not null,
    text       text collate "C",
    reason     text collate "C",
    evidence   text collate "C",
    replaces   bigint,
    birth      bigint,
    seal       bytea,
    salt       bytea,
    schema     bigint not null,
    recorded_by text not null default session_user
);
create index events_experience on @.events (experience, row);

create table @.lanes (
    lane bigint primary key,
    base bigint not null
);
insert into @.lanes values (0, 0);

create table @.snapshots (
    position bigint primary key,
    live     bigint[] not null
);

create table @.reflog (
    row             bigint primary key,
    batch           bigint not null,
    name            text collate "C" not null,
    version         bigint references @.versions,
    symbol          text collate "C",
    previous        bigint references @.versions,
    previous_symbol text collate "C",
    author          text collate "C" not null,
    time            bigint not null,
    action          text collate "C" not null,
    recorded_by     text not null default session_user
);
create index reflog_name on @.reflog (name, row);
create index reflog_standing on @.reflog (version) where name > 'heads0';

create table @.redactions (
    row    bigint primary key,
    event  bigint not null references @.events,
    author text collate "C" not null,
    time   bigint not null,
    reason text collate "C" not null,
    recorded_by text not null default session_user
);
create index redactions_event on @.redactions (event);

create table @.texts (
    digest bytea primary key,
    text   text collate "C" not null
);

create table @.runs (
    id     bigint primary key,
    name   text collate "C" not null unique,
    uid    text collate "C" not null unique,
    branch text collate "C" not null,
    base   bigint not null references @.versions,
    digest text collate "C" not null,
    config text collate "C" not null,
    author text collate "C" not null,
    time   bigint not null,
    recorded_by text not null default session_user
);

create table @.run_states (
    row    bigint primary key,
    run    bigint not null references @.runs,
    state  text collate "C" not null,
    detail text collate "C",
    time   bigint not null
);
create index run_states_run on @.run_states (run);

create table @.journal (
    id                bigint generated always as identity primary key,
    key               bytea not null unique,
    run               bigint references @.runs,
    stage             text collate "C" not null,
    step              bigint,
    model             text collate "C" not null,
    request           bytea not null references @.texts on update cascade,
    answer            text collate "C" not null,
    prompt_tokens     bigint not null,
    cached_tokens     bigint not null,
    completion_tokens bigint not null,
    reasoning_tokens  bigint not null,
    attempts          bigint not null,
    seconds           double precision not null,
    time              bigint not null,
    tx                bigint not null default pg_current_xact_id()::text::bigint
);
create index journal_run on @.journal (run, stage);
create index journal_tx on @.journal (run, tx);

create table @.rollouts (
    id       bigint generated always as identity primary key,
    run      bigint not null references @.runs,
    step     bigint not null,
    problem  text collate "C" not null,
    sample   bigint not null,
    version  bigint not null references @.versions,
    calls    text collate "C" not null,
    outcome  text collate "C" not null,
    reward   double precision,
    verdict  text collate "C" not null,
    time     bigint not null,
    tx       bigint not null default pg_current_xact_id()::text::bigint,
    unique (run, step, problem, sample)
);
create index rollouts_tx on @.rollouts (run, tx);

create table @.evaluations (
    id      bigint primary key,
    version bigint not null references @.versions,
    dataset text collate "C" not null,
    digest  text collate "C" not null,
    config  text collate "C" not null,
    summary text collate "C" not null,
    time    bigint not null,
    unique (version, digest)
);

create table @.scores (
    evaluation bigint not null references @.evaluations,
    problem    text collate "C" not null,
    sample     bigint not null,
    call       bytea,
    reward     double precision,
    answer     text collate "C",
    primary key (evaluation, problem, sample)
);

create table @.remotes (
    name     text collate "C" primary key,
    location text collate "C" not null
);

create table @.decisions (
    row     bigint primary key,
    id      text collate "C" not null unique,
    time    bigint not null,
    author  text collate "C" not null,
    kind    text collate "C" not null,
    subject text collate "C" not null,
    content text collate "C" not null,
    why     text collate "C",
    recorded_by text not null default session_user
);
create index decisions_subject on @.decisions (kind, subject);
"""

TRIGGERS = """
create function @.refuse() returns trigger language plpgsql as $$
begin
    raise exception '% is append-only', tg_table_name using errcode = 'restrict_violation';
end $$;

create function @.refuse_event() returns trigger language plpgsql as $$
begin
    if (new.row, new.op, new.experience, new.evidence, new.replaces, new.birth, new.seal,
            new.schema, new.recorded_by)
        is not distinct from (old.row, old.op, old.experience, old.evidence, old.replaces,
            old.birth, old.seal, old.schema, old.recorded_by)
        and new.text is null and new.reason is null and new.salt is null
        and exists (select 1 from @.redactions where event = old.row)
    then return new;
    end if;
    raise exception 'events is append-only' using errcode = 'restrict_violation';
end $$;

create function @.refuse_decision() returns trigger language plpgsql as $$
begin
    if (new.row, new.id, new.time, new.author, new.kind, new.recorded_by)
        is not distinct from (old.row, old.id, old.time, old.author, old.kind, old.recorded_by)
        and exists (select 1 from @.decisions where kind = 'redaction' and subject = old.id)
    then return new;
    end if;
    raise exception 'decisions is append-only' using errcode = 'restrict_violation';
end $$;

create trigger no_update before update on @.events
    for each row execute function @.refuse_event();
create trigger no_delete before delete on @.events
    for each row execute function @.refuse();
create trigger no_truncate before truncate on @.events
    for each statement execute function @.refuse();
create trigger no_update before update on @.decisions
    for each row execute function @.refuse_decision();
create trigger no_delete before delete on @.decisions
    for each row execute function @.refuse();
create trigger no_truncate before truncate on @.decisions
    for each statement execute function @.refuse();
""" + "".join(
    f"""
create trigger no_change before update or delete on @.{table}
    for each row execute function @.refuse();
create trigger no_truncate before truncate on @.{table}
    for each statement execute function @.refuse();
"""
    for table in APPEND_ONLY
)

REDACTION = """
create function @.blank_event(which bigint) returns void
language sql security definer set search_path = pg_catalog, pg_temp as $$
    update @.events set text = null, reason = null, salt = null where row = which;
$$;

create function @.put_redacted(place text, which text[], value text) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    case place
    when 'journal.answer' then
        update @.journal set answer = value where id = which[1]::bigint;
    when 'rollouts.verdict' then
        update @.rollouts set verdict = value where id = which[1]::bigint;
    when 'evaluations.config' then
        update @.evaluations set config = value where id = which[1]::bigint;
    when 'evaluations.summary' then
        update @.evaluations set summary = value where id = which[1]::bigint;
    when 'scores.answer' then
        update @.scores set answer = value where evaluation = which[1]::bigint
            and problem = which[2] and sample = which[3]::bigint;
    when 'decisions.subject' then
        update @.decisions set subject = value where row = which[1]::bigint;
    when 'decisions.content' then
        update @.decisions set content = value where row = which[1]::bigint;
    when 'decisions.why' then
        update @.decisions set why = value where row = which[1]::bigint;
    else
        raise exception '% is never redacted', place using errcode = 'restrict_violation';
    end case;
end $$;

create function @.put_redacted_request(was bytea, digest bytea, value text) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    insert into @.texts values (put_redacted_request.digest, value) on conflict do nothing;
    update @.journal set request = put_redacted_request.digest where request = was;
    delete from @.texts t where t.digest = was;
end $$;

revoke all on function @.blank_event(bigint) from public;
revoke all on function @.put_redacted(text, text[], text) from public;
revoke all on function @.put_redacted_request(bytea, bytea, text) from public;
"""

PROTECTION = """
create function @.may_move(which text) returns boolean
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select exists (
        select 1 from @.members where name = session_user and level in ('reviewer', 'owner')
    ) or not starts_with(which, 'protected/') and coalesce((
        select version is null from @.reflog where name = 'protected/' || which
        order by row desc limit 1
    ), true);
$$;

alter table @.reflog enable row level security;
create policy moves_are_read on @.reflog for select using (true);
create policy moves_of_open_names on @.reflog for insert with check (@.may_move(name));
"""

MEMBERS = """
create function @.set_member(
    who text, what text, inserted text[], replaced text[], functions text[]
) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    place text;
    one text;
    columns text;
begin
    if not pg_has_role(session_user, current_user, 'MEMBER') and not exists (
        select 1 from @.members where name = session_user and level = 'owner'
    ) then
        raise exception 'only an owner may say who is a member'
            using errcode = 'insufficient_privilege';
    end if;
    if exists (
        select 1 from unnest(replaced) r where r not in ('snapshots', 'remotes', 'members')
    ) then
        raise exception 'nobody may change what is recorded' using errcode = 'restrict_violation';
    end if;
    select nspname into place from pg_class c join pg_namespace n on n.oid = c.relnamespace
        where c.oid = '@.members'::regclass;
    execute format('revoke all on all tables in schema %I from %I', place, who);
    execute format('revoke all on all functions in schema %I from %I', place, who);
    execute format('revoke all on schema %I from %I', place, who);
    delete from @.members where name = who;
    if what is null then
        return;
    end if;
    insert into @.members values (who, what);
    execute format('grant usage on schema %I to %I', place, who);
    execute format('grant select on all tables in schema %I to %I', place, who);
    foreach one in array inserted loop
        select string_agg(quote_ident(attname), ', ') into columns from pg_attribute
            where attrelid = format('%I.%I', place, one)::regclass and attnum > 0
            and not attisdropped and attidentity = '' and attname not in ('recorded_by', 'tx');
        execute format('grant insert (%s) on %I.%I to %I', columns, place, one, who);
    end loop;
    foreach one in array replaced loop
        execute format('grant delete, update on %I.%I to %I', place, one, who);
    end loop;
    foreach one in array functions loop
        execute format('grant execute on function %I.%s to %I', place, one, who);
    end loop;
end $$;
"""

MIGRATIONS: tuple[str, ...] = (TABLES + TRIGGERS + REDACTION + PROTECTION + MEMBERS,)
"""Every change, in order: the first makes schema 1."""

POSTGRES_SCHEMA = len(MIGRATIONS)
"""The schema that this tfgrpo reads and writes in PostgreSQL."""
