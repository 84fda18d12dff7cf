//! An exclusive acquire beside mode blocks (lease-algorithms.md 5.4, 16.4, rule R5).

use std::ops::Range;

use super::*;
use crate::machine::NoHosts;

/// Host 2's block: it won version 5 and holds the lease shared with this generation.
pub(super) fn sharing(generation: u64) -> HostBlock {
    let mut block = released(block([2002, 2002, 2, 1, 400, 5]));
    block.mode = ModeBlock::shared(generation);
    block
}

pub(super) fn free_at_5() -> RawLeader {
    leader(5, Owner { timestamp: 0, ..owned_by(2, 1) })
}

/// The lease is free, and host 2 holds it shared with generation 1. All hosts are alive.
fn shared_lab() -> Lab {
    let mut lab = lab(free_at_5());
    all_alive(&mut lab);
    put_block(&mut lab, 2, sharing(1));
    lab
}

/// The same, but host 2 came back with generation 2.
fn reborn_lab() -> Lab {
    let mut lab = shared_lab();
    put_delta(&mut lab, 2, delta(2, 2, 950));
    lab.hosts = Rc::new(NoHosts);
    lab
}

const ROUNDS_BEFORE_VALUE: [(u64, i64); 6] = [(0, 1), (2, 1), (2, -1), (0, 10), (3, 1), (1, 1)];

#[test]
fn a_live_holder_refuses_before_anything_but_our_ballot_number_is_written() {
    let mut lab = shared_lab();
    let done = acquire_plain(&mut lab);
    let (error, code, retract) = failure(&done);
    assert_eq!((code, retract), (-11, false));
    assert_eq!(error, AcquireError::Shared { host: host(2), generation: 1 });
    assert_eq!(lab.brief(), ROUNDS_BEFORE_VALUE);
    assert_eq!((leader_of(&lab), block_of(&lab, 2)), (free_at_5(), sharing(1)));
    assert_eq!(fields(&block_of(&lab, 1)), [1, 0, 0, 0, 0, 6]);
}

/// We gave version 4 up, and another host that had found our value is about to commit it once more: only our flag says that we have let go,
/// to hosts that look at nothing else.
#[test]
fn a_refused_acquire_does_not_take_back_that_an_older_version_was_given_up() {
    let mut lab = shared_lab();
    put_block(&mut lab, US, released(block([1, 1, US, 1, 300, 4])));
    let done = acquire_plain(&mut lab);
    assert_eq!((failure(&done).1, failure(&done).2), (-11, false));
    assert_eq!(block_of(&lab, US), released(block([2001, 0, 0, 0, 0, 6])));
}

/// 16.4, with the holder judged before the value is written as well, and its ballot record kept (rule R2).
#[test]
fn a_dead_holders_mode_block_is_cleared_and_its_ballot_record_kept() {
    let mut lab = reborn_lab();
    let held = held(&acquire_plain(&mut lab));
    assert_eq!((held.lver(), held.block.mode.is_shared()), (6, false));
    let mut expected = ROUNDS_BEFORE_VALUE.to_vec();
    expected.extend([(2, -1), (0, 10), (0, -1), (3, 1), (1, 1), (3, -1)]);
    assert_eq!(lab.brief(), expected);
    assert_eq!(block_of(&lab, 2), HostBlock { mode: ModeBlock::zeroed(), ..sharing(1) });
}

/// Rule R5, row by row: generation of the mode block, delta record, table, and whether the holder counts as alive.
#[test]
fn who_counts_as_alive() {
    let none = || Rc::new(NoHosts) as Rc<dyn HostView>;
    let silent = |last_live| seen(2, 1, 500, last_live, 990);
    let alive = || silent(990);
    let never_changed = || {
        let entry = HostSeen {
            first_check: MonoTime::from_secs(500),
            last_check: MonoTime::from_secs(990),
            last_live: None,
            owner_id: 2,
            owner_generation: 1,
            timestamp: 900,
            io_timeout: IoTimeout::DEFAULT,
            newest_generation: 1,
        };
        Rc::new(Seen(2, entry)) as Rc<dyn HostView>
    };
    let later_known = || {
        let Some(entry) = silent(859).seen(host(2)) else { panic!("it is there") };
        Rc::new(Seen(2, HostSeen { newest_generation: 2, ..entry })) as Rc<dyn HostView>
    };
    let mut slow = delta(2, 1, 900);
    slow.io_timeout = 100.into();
    slow.seal();
    // Its record says no io timeout, and the table has seen it with one that is shorter than ours.
    let mut silent_of_it = delta(2, 1, 900);
    silent_of_it.io_timeout = 0.into();
    silent_of_it.seal();
    let short = |last_live| {
        let Some(entry) = silent(last_live).seen(host(2)) else { panic!("it is there") };
        Rc::new(Seen(2, HostSeen { io_timeout: IoTimeout::new(1).unwrap(), ..entry })) as Rc<dyn HostView>
    };
    let rows = [
        // Never looked at: only our own looks at it can tell, and it stays silent.
        (1, delta(2, 1, 900), none(), false),
        (1, silent_of_it, short(900), true),
        (1, silent_of_it, short(859), false),
        // Silent for longer than 8T + F, for just as long, and with a longer io timeout of its own.
        (1, delta(2, 1, 900), silent(859), false),
        (1, delta(2, 1, 900), silent(861), true),
        (1, slow, silent(859), true),
        (1, delta(2, 1, 900), never_changed(), false),
        // The table says dead, the record has moved on: it renewed, or it was joined anew (CE4).
        (1, delta(2, 1, 905), silent(859), true),
        (2, delta(2, 2, 905), silent(859), true),
        (2, delta(2, 2, 905), seen(2, 1, 500, 990, 990), true),
        // Given up, or taken anew.
        (1, delta(2, 1, 0), none(), false),
        (1, delta(2, 2, 950), none(), false),
        // An earlier instance's release that landed late says nothing of a newer one.
        (2, delta(2, 1, 0), alive(), true),
        (2, delta(2, 1, 900), alive(), true),
        // A mode block newer than everything known: only silence counts, and that of a host with any io timeout.
        (2, delta(2, 1, 900), silent(859), true),
        // Not newer: an earlier instance's renewal has landed late.
        (2, delta(2, 1, 900), later_known(), false),
        // Somebody else's record in its place.
        (1, delta(3, 2, 950), alive(), true),
    ];
    for (row, (generation, record, hosts, alive)) in rows.into_iter().enumerate() {
        let mut lab = lab(free_at_5());
        put_block(&mut lab, 2, sharing(generation));
        put_delta(&mut lab, 2, record);
        lab.hosts = hosts;
        let done = acquire_plain(&mut lab);
        if alive {
            assert_eq!(failure(&done).1, -11, "row {row}");
            assert!(block_of(&lab, 2).mode.is_shared(), "row {row}");
        } else {
            held(&done);
            assert!(!block_of(&lab, 2).mode.is_shared(), "row {row}");
        }
    }
}

#[test]
fn one_live_holder_among_dead_ones_refuses_and_nothing_is_cleared() {
    let mut lab = reborn_lab();
    put_block(&mut lab, 7, HostBlock { mode: ModeBlock::shared(1), ..HostBlock::zeroed() });
    all_alive(&mut lab);
    let done = acquire_plain(&mut lab);
    assert_eq!(failure(&done).0, AcquireError::Shared { host: host(7), generation: 1 });
    assert_eq!(writes(&lab), [2], "our ballot number");
}

#[test]
fn several_dead_holders_are_all_cleared() {
    let mut lab = reborn_lab();
    for id in [4, 8] {
        put_block(&mut lab, id, HostBlock { mode: ModeBlock::shared(1), ..HostBlock::zeroed() });
        put_delta(&mut lab, id, delta(id, 1, 0));
    }
    held(&acquire_plain(&mut lab));
    for id in [2, 4, 8] {
        assert!(!block_of(&lab, id).mode.is_shared(), "host {id}");
    }
}

#[test]
fn a_holder_that_let_go_meanwhile_is_no_obstacle() {
    let mut lab = shared_lab();
    // Its block is read in the round after phase 1.
    before_round(&mut lab, READ_1 + 1, |lab| {
        put_block(lab, 2, HostBlock { mode: ModeBlock::zeroed(), ..sharing(1) });
    });
    held(&acquire_plain(&mut lab));
    assert!(!writes(&lab).contains(&3), "nothing to clear");
}

#[test]
fn our_own_mode_block_is_wiped_and_no_obstacle() {
    let mut lab = lab(free_at_5());
    let mut own = released(block([2001, 2001, 1, 1, 400, 5]));
    own.mode = ModeBlock::shared(1);
    put_block(&mut lab, 1, own);
    held(&acquire_plain(&mut lab));
    assert!(!block_of(&lab, 1).mode.is_shared());
}

#[test]
fn a_damaged_holder_is_refused_with_its_code() {
    type Damage = fn(&mut Lab);
    let rows: [(Damage, i32); 3] = [
        (|lab| put_delta(lab, 2, RawLeader::zeroed()), -223),
        (
            |lab| {
                let mut bad = delta(2, 2, 0);
                bad.owner_generation = 7.into();
                put_delta(lab, 2, bad);
            },
            -229,
        ),
        (
            |lab| {
                let mut bad = sharing(1);
                bad.dblock.inp = 9.into();
                put_block(lab, 2, bad);
            },
            -214,
        ),
    ];
    for (damage, expected) in rows {
        let mut lab = reborn_lab();
        // After phase 1 has read it, so that the holder's own look meets it.
        before_round(&mut lab, READ_1 + 1, damage);
        assert_eq!(code(&acquire_plain(&mut lab)), expected);
        assert!(block_of(&lab, 2).mode.is_shared());
    }
}

/// Number of operations of an acquire over one dead holder.
const OPS: usize = 12;

/// Host 4 takes the lease exclusively, however long that takes. A value of ours that it finds it commits first.
#[track_caller]
fn take_as_another(lab: &mut Lab) {
    for _ in 0..3 {
        match acquire_as(lab, config(4), AcquireOptions::default()).outcome {
            AcquireOutcome::Acquired(_) => {
                assert!(!block_of(lab, 2).mode.is_shared());
                assert_eq!(leader_of(lab).owner_id.get(), 4);
                return;
            }
            AcquireOutcome::Failed { error: AcquireError::Other(_), .. } => {}
            AcquireOutcome::Failed { error, .. } => panic!("{error}"),
        }
    }
    panic!("not within three attempts");
}

/// Every operation fails, or never completes: what is reported as failed can be taken back, and then taken again.
#[test]
fn every_failure_leaves_a_lease_that_can_be_taken() {
    for n in 0..OPS {
        for (fate, hangs) in [(Fate::fail(IoFailure::Os(5)), false), (Fate::after(11_000), true)] {
            let mut lab = reborn_lab();
            nth_op(&mut lab, n, fate);
            let mut machine = PaxosAcquire::new(config(US), AcquireOptions::default());
            let done = lab.run(&mut machine);
            let (_, code, again) = failure(&done);
            assert!(code < 0, "operation {n}");
            let hung_write = hangs && [2, 6, 8, 11].contains(&n);
            assert_eq!(done.outstanding, u32::from(hung_write), "operation {n}");
            if hung_write {
                lab.pass(&mut machine, 20);
            }
            lab.no_faults();
            assert_eq!(again, n >= 6, "operation {n}");
            if again {
                retract(&mut lab).outcome.result.unwrap();
            }
            assert_eq!(leader_of(&lab).timestamp.get(), 0, "operation {n}");
            take_as_another(&mut lab);
        }
    }
}

/// The host stops after each of its writes; another one, that waits until it is dead, takes the lease.
#[test]
fn a_crash_after_each_write_leaves_a_lease_that_can_be_taken() {
    for writes_done in 1..=4 {
        let mut lab = reborn_lab();
        let mut writes = 0;
        lab.fates(move |op: &Op| {
            writes += usize::from(op.is_write());
            if op.is_write() && writes > writes_done { Fate::never() } else { Fate::prompt() }
        });
        let done = lab.run(&mut PaxosAcquire::new(config(US), AcquireOptions::default()));
        assert_eq!(matches!(done.outcome, AcquireOutcome::Acquired(_)), writes_done == 4);
        lab.no_faults();
        take_as_another(&mut lab);
    }
}

#[test]
fn nothing_is_cleared_once_the_lockspace_is_gone() {
    for round in 1..=12 {
        let mut lab = reborn_lab();
        before_round(&mut lab, round, |lab| lab.lockspace = LockspaceNow::Gone);
        let done = acquire_plain(&mut lab);
        if round <= 10 {
            assert_eq!(code(&done), -28, "round {round}");
            assert!(block_of(&lab, 2).mode.is_shared(), "round {round}");
        }
    }
}

/// A free lease on three disks, some of which say that an earlier instance of host 2 shares it.
fn reborn_on_three(marked: Range<u8>) -> Lab {
    let mut lab = Lab::new();
    lab.disk.add(Place::Lockspace, MIB);
    for id in 1..=NUM_HOSTS {
        put_delta(&mut lab, id, delta(id, 1, 900));
    }
    put_delta(&mut lab, 2, delta(2, 2, 950));
    for disk in 0..3 {
        lab.disk.add(Place::Resource(disk), MIB);
        put(&mut lab, Place::Resource(disk), 0, Content::Leader(free_at_5()));
    }
    for disk in marked {
        put(&mut lab, Place::Resource(disk), 3, Content::Block(sharing(1)));
    }
    lab
}

#[test]
fn a_mode_block_is_cleared_on_every_disk() {
    // It reached two of three.
    let mut lab = reborn_on_three(1..3);
    let done = acquire_as(&mut lab, PaxosConfig { disks: 3, ..config(US) }, AcquireOptions::default());
    held(&done);
    for disk in 0..3 {
        let block = HostBlock::from_sector(&lab.disk.sector(Place::Resource(disk), B512, 3));
        assert!(!block.mode.is_shared(), "disk {disk}");
    }
}

/// Of a host that has no host id in our lockspace, whose sectors are larger than the resource's, nothing can be said.
#[test]
fn a_holder_beyond_the_lockspace_keeps_the_lease_and_the_last_one_inside_is_judged() {
    for (id, expected) in [(250, Ok(6)), (251, Err(-11)), (252, Err(-11))] {
        let mut lab = free_lab();
        let geometry = wide_lockspace(&mut lab);
        let mut record = free_at_5();
        record.num_hosts = 300.into();
        record.seal();
        put_leader(&mut lab, record);
        let mut block = released(block([2000 + id, 2000 + id, id, 1, 400, 5]));
        block.mode = ModeBlock::shared(1);
        put_block(&mut lab, id, block);
        let done = acquire_as(&mut lab, PaxosConfig { geometry, ..config(US) }, AcquireOptions::default());
        match expected {
            Ok(lver) => assert_eq!(held(&done).lver(), lver, "{id}"),
            Err(number) => assert_eq!(code(&done), number, "{id}"),
        }
    }
}

#[test]
fn why_a_dead_holder_could_not_be_cleared_is_told() {
    let mut lab = reborn_lab();
    // After two of our block and the leader.
    nth_write(&mut lab, 3, Fate::fail(IoFailure::Os(5)));
    let done = acquire_plain(&mut lab);
    assert_eq!(writes(&lab), [2, 2, 0, 3]);
    assert_eq!(failure(&done).0, AcquireError::DblockWrite(IoFailure::Os(5)));
}

/// A disk that cannot be told any more, because a write to it hangs, is no obstacle; nor is it counted as cleared.
#[test]
fn a_dead_holder_is_cleared_on_the_disks_that_take_writes() {
    for hung in 0..3 {
        let mut lab = reborn_on_three(0..3);
        let hangs = Place::Resource(hung);
        lab.fates(move |op| if op.is_write() && op.place == hangs { Fate::never() } else { Fate::prompt() });
        let done = acquire_as(&mut lab, PaxosConfig { disks: 3, ..config(US) }, AcquireOptions::default());
        held(&done);
        assert_eq!(done.outstanding, 1);
        for disk in 0..3 {
            let block = HostBlock::from_sector(&lab.disk.sector(Place::Resource(disk), B512, 3));
            assert_eq!(block.mode.is_shared(), disk == hung, "disk {disk}, {hung} hangs");
        }
        // With one more disk that fails now it is not cleared on a majority.
        let other = Place::Resource((hung + 1) % 3);
        for disk in 0..3 {
            put(&mut lab, Place::Resource(disk), 0, Content::Leader(free_at_5()));
            put(&mut lab, Place::Resource(disk), 2, Content::Block(block([0; 6])));
            put(&mut lab, Place::Resource(disk), 3, Content::Block(sharing(1)));
        }
        lab.fates(move |op| {
            let clears = matches!(op.action, crate::machine::Action::Write { sector: 3, .. });
            match op.place {
                place if op.is_write() && place == hangs => Fate::never(),
                place if clears && place == other => Fate::fail(IoFailure::Os(5)),
                _ => Fate::prompt(),
            }
        });
        let done = acquire_as(&mut lab, PaxosConfig { disks: 3, ..config(US) }, AcquireOptions::default());
        assert!(matches!(failure(&done).0, AcquireError::DblockWrite(_)), "{hung} hangs");
    }
}
