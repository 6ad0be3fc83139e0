//! Seeded bugs: each is a mistake that somebody could make, and that some test must catch. `make mutants` switches them
//! on one at a time, by `ONCEBOX_MUTANT`, in one build made for it. No binary of another build has this file; every build's tests see that each still finds its statement.

/// A mistake in a statement: its name, a piece of the right text, and the wrong one.
const IN_SQL: [(&str, &str, &str); 34] = [
    (
        "shut-lanes-open",
        "f.state = 'pending' and f.held = 'order' and not f.shut",
        "f.state = 'pending' and f.held = 'order'",
    ),
    (
        "no-compare-and-swap",
        "c.owner = $1 and c.owner_epoch = b.owner_epoch and c.next_offset = b.expected",
        "c.next_offset <= b.next_offset",
    ),
    (
        "no-owner-epoch",
        "c.owner = $1 and c.owner_epoch = b.owner_epoch and c.next_offset = b.expected",
        "c.next_offset = b.expected",
    ),
    (
        "rows-apart-from-cursor",
        "join moved on moved.id = e.cursor",
        "join oncebox.cursor as moved on moved.id = e.cursor",
    ),
    (
        "dead-letters-dropped",
        "      join moved on moved.id = d.cursor\n     cross join durable\n),\n-- Not stored",
        "      join moved on false\n     cross join durable\n),\n-- Not stored",
    ),
    (
        "late-failure-of-a-first-attempt",
        "join locked on locked.cursor = f.cursor and locked.epoch = f.epoch and locked.owner = $10",
        "join locked on locked.cursor = f.cursor and $10 is not null",
    ),
    (
        "stored-behind-what-a-failover-lost",
        "\n   and locked.timeline = left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)\n    on conflict",
        "\n    on conflict",
    ),
    ("late-answer-frees-the-lane", "r.fence = a.fence or r.state <> 'active' as ends", "a.fence is not null as ends"),
    ("removed-work-forgotten", "where w.renamed_to is null and rest.waiting > 0", "where w.renamed_to is not null"),
    ("late-failure-of-a-retry", "where r.fence = mine.fence", "where mine.fence is not null"),
    ("park-under-any-fence", "and $9 and r.fence = $8", "and $9"),
    (
        "nothing-rescued",
        "where o.cursor = $1 and o.record_offset >= $3 and o.record_offset < $4\n       and not exists (\n           select 1 from oncebox.ended",
        "where o.cursor = $1 and o.record_offset >= $3 and o.record_offset < $3 and $4 > 0\n       and not exists (\n           select 1 from oncebox.ended",
    ),
    (
        "no-timeline",
        "and mine.timeline = left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)",
        "and mine.timeline is not null",
    ),
    // Each claim writes down what the one before it has claimed, which is under way by then.
    (
        "marked-after-sending",
        "set claimed_to = reach.upto\n      from reach\n     where c.id = $1 and c.delivery_epoch = $2 and c.claimed_to = $3 and reach.upto > $3\n       and c.cancels = (select cancels from seen)\n returning c.claimed_to",
        "set claimed_to = $3\n      from reach\n     where c.id = $1 and c.delivery_epoch = $2 and c.claimed_to <= $3\n returning reach.upto as claimed_to",
    ),
    (
        "split-records-given-back",
        "set claimed_to = greatest(\n           least(c.claimed_to, $3),",
        "set claimed_to = least(\n           least(c.claimed_to, $3),",
    ),
    (
        "repeats-not-suppressed",
        "where e.fingerprint is not null and fresh.cursor is null\n    ),",
        "where e.fingerprint is null and fresh.cursor is not null\n    ),",
    ),
    (
        "spill-under-any-epoch",
        "join locked on locked.id = e.cursor and locked.owner_epoch = e.epoch",
        "join locked on locked.id = e.cursor",
    ),
    (
        "failures-of-what-a-failover-lost",
        "\n   and locked.timeline = left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)\n where not exists",
        "\n where not exists",
    ),
    (
        "deaths-of-what-a-failover-lost",
        " and d.owner = $10 and d.timeline = left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)))",
        " and d.owner = $10))",
    ),
    (
        "ends-under-the-senders-day",
        "\n       and d.timeline = left(pg_walfile_name(pg_current_wal_insert_lsn()), 8);\n    get diagnostics",
        ";\n    get diagnostics",
    ),
    (
        "marks-of-any-era",
        "where c.id = locked.id and c.direct and c.mark_era = mark.era and c.next_offset < mark.marked",
        "where c.id = locked.id and c.direct and c.next_offset < mark.marked",
    ),
    (
        "copies-after-a-failover",
        "c.owner = $4 and c.owner_epoch = mine.epoch\n       and c.timeline = left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)",
        "c.owner = $4 and c.owner_epoch = mine.epoch",
    ),
    (
        "ends-under-any-epoch",
        "where d.cursor = mine.cursor and d.epoch = mine.epoch and d.owner = $8 and d.lease_until > clock_timestamp()\n",
        "where d.cursor = mine.cursor and d.owner = $8 and d.lease_until > clock_timestamp()\n",
    ),
    (
        "ends-by-any-owner",
        "where d.cursor = mine.cursor and d.epoch = mine.epoch and d.owner = $8 and d.lease_until > clock_timestamp()\n",
        "where d.cursor = mine.cursor and d.epoch = mine.epoch and d.lease_until > clock_timestamp()\n",
    ),
    (
        "ends-past-the-lease",
        "where d.cursor = mine.cursor and d.epoch = mine.epoch and d.owner = $8 and d.lease_until > clock_timestamp()\n",
        "where d.cursor = mine.cursor and d.epoch = mine.epoch and d.owner = $8\n",
    ),
    ("lost-deliveries-uncounted", "if done <> cardinality($9) then", "if done > cardinality($9) then"),
    ("clashes-ignored", "if clashes > 0 then", "if clashes < 0 then"),
    ("active-keys-replayed", "\n       and not exists (select 1 from active)\n", "\n"),
    ("replays-uncounted", "where j.id = $15\n", "where j.id = $15 and false\n"),
    ("stuck-events-overlooked", "else 'stuck' end as fate", "else 'waiting' end as fate"),
    (
        "missing-letters-overlooked",
        "m.state = 'discarded' and m.letter is null",
        "m.state = 'no such state' and m.letter is null",
    ),
    (
        "keys-not-locked",
        "on conflict on constraint unique_key_pkey do update set workflow = excluded.workflow",
        "on conflict on constraint unique_key_pkey do nothing",
    ),
    (
        "replaced-while-sent",
        "\n       and r.state <> 'active'\n    returning r.day, r.sends into gone",
        "\n    returning r.day, r.sends into gone",
    ),
    ("done-twice", "\n         where not oncebox.has(m.again, e.record_offset)", ""),
];

pub fn is_on(name: &str) -> bool {
    std::env::var("ONCEBOX_MUTANT").is_ok_and(|chosen| chosen == name)
}

/// A statement with its mistake, if the one that is on has to do with it.
pub fn in_sql(text: &str) -> String {
    let chosen = std::env::var("ONCEBOX_MUTANT").unwrap_or_default();
    match IN_SQL.iter().find(|(name, _, _)| *name == chosen) {
        Some((_, right, wrong)) => text.replace(right, wrong),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mistake_finds_its_statement() {
        let mut texts = String::new();
        for folder in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/sql")).unwrap().flatten() {
            for file in std::fs::read_dir(folder.path()).unwrap().flatten() {
                texts.push_str(&std::fs::read_to_string(file.path()).unwrap());
            }
        }
        for (name, right, _) in IN_SQL {
            assert!(texts.contains(right), "{name}: `{right}` is in no statement");
        }
    }
}
