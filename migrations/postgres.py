"""The history of the schema in PostgreSQL: the same tables as in a file, one schema a library.

A migration that has been released is never edited. `@` stands for the library's schema, quoted.
What only a database needs is beside the tables: who wrote a row (`recorded_by`), the
transaction that wrote it (`tx`), and functions with which a redaction changes what no role may
update. `docs/format.md` explains the tables.
"""

from __future__ import annotations

import re

from tfgrpo.migrations import tables

APPEND_ONLY = ("versions", "lanes", "reflog", "redactions", "runs", "run_states")
"""The tables of which nothing is ever changed; `events` and `decisions` know of redaction."""

OWN_TABLES = """
create table @.migrations (
    number integer primary key,
    time   timestamptz not null default now()
);

create table @.members (                     -- who may do what: `tfgrpo store grant`
    name  text collate "C" primary key,      -- a role of the database
    level text not null check (level in ('reader', 'trainer', 'reviewer', 'owner'))
);
"""
TYPES = {
    "integer": "bigint",
    "blob": "bytea",
    "real": "double precision",
    "text": 'text collate "C"',
}
RECORDED_BY = ("versions", "events", "reflog", "redactions", "runs", "decisions")
"""The tables that say who wrote a row."""
IDENTITY = "id bigint generated always as identity primary key"
TX = "tx bigint not null default pg_current_xact_id()::text::bigint"
OTHERWISE = {
    "id bigint primary key, digest bytea not null unique": "digest bytea primary key",
    "request bigint not null references @.texts": (
        "request bytea not null references @.texts on update cascade"
    ),
    "live bytea not null": "live bigint[] not null",
    "id bigint primary key, key bytea": f"{IDENTITY}, key bytea",
    "id bigint primary key, run bigint not null references @.runs, step": (
        f"{IDENTITY}, run bigint not null references @.runs, step"
    ),
    "time bigint not null ); create index journal_run": (
        f"time bigint not null, {TX} ); create index journal_run"
    ),
    "time bigint not null, unique (run, step, problem, sample)": (
        f"time bigint not null, {TX}, unique (run, step, problem, sample)"
    ),
    "events (experience)": "events (experience, row)",
    "reflog (name)": "reflog (name, row)",
}
"""What a database has in another way: columns, keys and indexes."""
OWN_INDEXES = """
create index redactions_event on @.redactions (event);
create index journal_tx on @.journal (run, tx);
create index rollouts_tx on @.rollouts (run, tx);
"""


def _of_database(script: str) -> str:
    """The tables of a file as a database has them."""
    script = re.sub(r"--.*", "", script)
    script = re.sub(
        r"^( +\w+ +)(integer|blob|real|text)\b", lambda m: m[1] + TYPES[m[2]], script, flags=re.M
    )
    script = re.sub(r"(create table|insert into|references|\bon) (?=\w+\b)", r"\1 @.", script)
    script = " ".join(script.replace(") without rowid", ")").split())
    for table in RECORDED_BY:
        more = ", recorded_by text not null default session_user"
        script = re.sub(rf"(create table @\.{table} \(.*?)( \);)", rf"\1{more}\2", script)
    for here, there in OTHERWISE.items():
        script = script.replace(here, there)
    return script


TABLES = OWN_TABLES + _of_database(tables.ALL) + OWN_INDEXES

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

IMPROVING = """
create function @.may_decide(kind text, subject text, content text) returns boolean
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select exists (
        select 1 from @.members where name = session_user and level in ('reviewer', 'owner')
    ) or may_decide.kind in ('improvement', 'regression', 'discussion')
    or may_decide.kind = 'proposal' and may_decide.content::json ->> 'state' = 'open'
        and not exists (
            select 1 from @.decisions d
            where d.kind = 'proposal' and d.subject = may_decide.subject
        );
$$;

alter table @.decisions enable row level security;
create policy decisions_are_read on @.decisions for select using (true);
create policy what_training_records on @.decisions
    for insert with check (@.may_decide(kind, subject, content));

do $$
declare
    who text;
    columns text;
begin
    select string_agg(quote_ident(attname), ', ') into columns from pg_attribute
        where attrelid = '@.decisions'::regclass and attnum > 0
        and not attisdropped and attidentity = '' and attname not in ('recorded_by', 'tx');
    for who in
        select name from @.members join pg_roles on rolname = name where level = 'trainer'
    loop
        execute format('grant insert (%s) on @.decisions to %I', columns, who);
    end loop;
end $$;
"""
"""What a trainer records of an improvement: proposals that wait, and no decision about them."""

MIGRATIONS: tuple[str, ...] = (
    TABLES + TRIGGERS + REDACTION + PROTECTION + MEMBERS,
    IMPROVING,
)
"""Every change, in order: the first makes schema 1."""

POSTGRES_SCHEMA = len(MIGRATIONS)
"""The schema that this tfgrpo reads and writes in PostgreSQL."""
