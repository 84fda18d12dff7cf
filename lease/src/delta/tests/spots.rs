//! Sectors that cannot be read: only their own hosts are not looked at (docs/decisions/0022-unreadable-sectors.md).

use super::*;
use crate::delta::scan::{FAILED_READS_MAX, HostScan, ScanOutcome};
use crate::hosts::{HOSTS_PER_GROUP, HostState};
use crate::machine::{Action, HostView, IoFailure, Op};
use crate::testing::{Fate, Noisy};

const EIO: IoFailure = IoFailure::Os(5);

/// Reads of the whole area, in pieces.
const PIECES: usize = 4;

fn config_of(io_timeout: u32) -> DeltaConfig {
    DeltaConfig { io_timeout: timeout(io_timeout), ..config() }
}

fn look(lab: &mut Lab, hosts: &mut HostScan) -> ScanOutcome {
    lab.trace.clear();
    lab.rerun(&mut Noisy(hosts)).outcome
}

fn reads(op: &Op, id: u64) -> bool {
    matches!(op.action, Action::Read { first, count } if (first..first + count).contains(&(id - 1)))
}

/// What reads any of these host ids fails.
fn bad(lab: &mut Lab, ids: &'static [u64]) {
    lab.fates(move |op| if ids.iter().any(|id| reads(op, *id)) { Fate::fail(EIO) } else { Fate::after(0) });
}

/// Looks with every renewal, and when the scan wants to, for so many seconds, while all of these host ids are renewed.
fn watch(lab: &mut Lab, hosts: &mut HostScan, secs: u64, alive: &[u64], t: u64) {
    let (end, mut renewal) = (lab.now.plus_secs(secs), lab.now);
    while lab.now <= end {
        lab.now = lab.now.max(hosts.due().unwrap_or(renewal).min(renewal));
        if lab.now >= renewal {
            renewal = renewal.plus_secs(2 * t);
        }
        let now = lab.now.secs();
        for id in alive {
            edit(lab, *id, |leader| leader.timestamp = (7000 + now).into());
        }
        look(lab, hosts);
    }
}

fn state(lab: &Lab, hosts: &HostScan, id: u64) -> HostState {
    hosts.table().status(host(id), lab.now).unwrap().state
}

/// Hosts 1, 2, 5, 9, 20 and 700 are joined.
const JOINED: [u64; 6] = [1, 2, 5, 9, 20, 700];

fn area(io_timeout: u32) -> (Lab, HostScan) {
    let mut lab = lab_with(Geometry::B512_M1, io_timeout);
    for id in JOINED {
        edit(&mut lab, id, held_by("somebody", id, 1, 5));
        edit(&mut lab, id, |leader| leader.io_timeout = io_timeout.try_into().unwrap());
    }
    lab.fates(|_| Fate::after(0));
    (lab, HostScan::new(&config_of(io_timeout), Geometry::B512_M1))
}

#[test]
fn an_unreadable_sector_hides_none_of_its_neighbours() {
    for t in [1, 2, 10] {
        // From the first look on, and since a later one. The second block is one of 4096 bytes.
        for (looked, spots) in
            [(false, &[5, 300][..]), (true, &[5, 300]), (false, &[5, 513, 514, 515, 516, 517, 518, 519, 520])]
        {
            let (mut lab, mut hosts) = area(t);
            if looked {
                look(&mut lab, &mut hosts);
            }
            bad(&mut lab, spots);
            watch(&mut lab, &mut hosts, 400, &[1, 2, 5, 9, 700], t.into());
            for id in [2, 9, 700] {
                assert_eq!(state(&lab, &hosts, id), HostState::Live, "{id}, T {t}");
            }
            assert_eq!(state(&lab, &hosts, 20), HostState::Dead, "T {t}");
            assert_eq!(state(&lab, &hosts, 4), HostState::Free, "T {t}");
            assert!(hosts.table().is_complete());
            let spot = hosts.table().seen(host(5));
            assert_eq!(spot.is_some(), looked, "nobody is judged by a look at somebody else");
            let never_used = *spots.last().unwrap();
            assert_eq!(hosts.table().seen(host(never_used)).is_some(), looked);
            lab.fates(|_| Fate::after(0));
            watch(&mut lab, &mut hosts, 4 * u64::from(t) + 3, &JOINED, t.into());
            assert_eq!(state(&lab, &hosts, 5), HostState::Live);
            assert_eq!(state(&lab, &hosts, 300), HostState::Free);
            look(&mut lab, &mut hosts);
            assert!(lab.trace.len() <= PIECES, "{:?}", lab.brief());
        }
    }
}

#[test]
fn who_could_not_be_read_has_the_times_of_the_looks_at_it() {
    let (mut lab, mut hosts) = area(10);
    let begin = lab.now;
    look(&mut lab, &mut hosts);
    let looked = |lab: &mut Lab, hosts: &mut HostScan, id| {
        let seen = hosts.table().seen(host(id)).unwrap();
        (seen.first_check.secs_since(begin), lab.now.secs_since(seen.last_check))
    };
    lab.now = lab.now.plus_secs(20);
    bad(&mut lab, &[5]);
    look(&mut lab, &mut hosts);
    assert_eq!(looked(&mut lab, &mut hosts, 5), (0, 20));
    assert_eq!(looked(&mut lab, &mut hosts, 9), (0, 0));
    assert_eq!(looked(&mut lab, &mut hosts, 8), (0, 0), "of its group, never used");
    lab.now = lab.now.plus_secs(20);
    lab.fates(|_| Fate::after(0));
    look(&mut lab, &mut hosts);
    assert_eq!(looked(&mut lab, &mut hosts, 5), (0, 0));

    // Never read before: its first look is its own.
    let (mut lab, mut hosts) = area(10);
    let begin = lab.now;
    bad(&mut lab, &[5]);
    look(&mut lab, &mut hosts);
    lab.now = lab.now.plus_secs(20);
    lab.fates(|_| Fate::after(0));
    look(&mut lab, &mut hosts);
    let seen = hosts.table().seen(host(5)).unwrap();
    assert_eq!((seen.first_check.secs_since(begin), seen.last_check), (20, lab.now));
    assert_eq!(state(&lab, &hosts, 5), HostState::Unknown, "seen once");
}

#[test]
fn a_path_that_is_down_costs_few_reads_and_hides_nobody_afterwards() {
    for looked in [false, true] {
        let (mut lab, mut hosts) = area(10);
        if looked {
            look(&mut lab, &mut hosts);
        }
        lab.fates(|_| Fate::fail(EIO));
        for _ in 0..5 {
            lab.now = lab.now.plus_secs(20);
            let outcome = look(&mut lab, &mut hosts);
            assert_eq!(outcome.failed, Some((host(1), EIO)));
            assert!(lab.trace.len() <= FAILED_READS_MAX as usize + 2 * PIECES, "{}", lab.trace.len());
            if !looked {
                assert_eq!(lab.trace.len(), FAILED_READS_MAX as usize + PIECES - 1);
                assert!(JOINED.iter().all(|id| hosts.table().seen(host(*id)).is_none()));
            }
        }
        lab.fates(|_| Fate::after(0));
        lab.now = lab.now.plus_secs(20);
        look(&mut lab, &mut hosts);
        assert!(lab.trace.len() <= 2 * PIECES);
        for id in JOINED {
            assert_eq!(hosts.table().seen(host(id)).unwrap().last_check, lab.now);
        }
    }
}

/// Somebody whose sector could not be read once may have asked for attention just then: it is not left until the area is due again.
#[test]
fn who_was_left_out_is_looked_at_again_soon() {
    let (mut lab, mut hosts) = area(10);
    bad(&mut lab, &[300]);
    look(&mut lab, &mut hosts);
    assert_eq!(lab.trace.len(), PIECES + 512 / HOSTS_PER_GROUP + HOSTS_PER_GROUP, "one group host by host");
    assert_eq!(hosts.due(), Some(lab.now.plus_secs(1)));
    lab.now = lab.now.plus_secs(1);
    lab.fates(|_| Fate::after(0));
    look(&mut lab, &mut hosts);
    assert_eq!(hosts.table().seen(host(300)).unwrap().last_check, lab.now);
}

/// Each read of a part takes almost an io timeout.
#[test]
fn parts_on_a_slow_path_hold_up_a_look_for_two_io_timeouts_at_most() {
    let (mut lab, mut hosts) = area(10);
    look(&mut lab, &mut hosts);
    lab.now = lab.now.plus_secs(20);
    lab.fates(|op| match op.action {
        Action::Read { count, .. } if count > HOSTS_PER_GROUP as u64 => Fate::fail(EIO),
        _ => Fate::after(9_900),
    });
    let begin = lab.now;
    look(&mut lab, &mut hosts);
    // And what of another piece is in use, which is no wider than a part.
    assert!(lab.now.millis_since(begin) <= (2 + 1) * 10_000, "{}", lab.now.millis_since(begin));
}

/// A part that hangs ends the look; what was read before it counts.
#[test]
fn a_part_that_hangs_ends_the_look() {
    let (mut lab, mut hosts) = area(10);
    look(&mut lab, &mut hosts);
    let looked = lab.now;
    lab.now = lab.now.plus_secs(20);
    lab.fates(|op| match op.action {
        Action::Read { first: 4, count: 1 } => Fate::never(),
        Action::Read { first: 0, .. } if !matches!(op.action, Action::Read { count: 1, .. }) => {
            Fate::fail(EIO)
        }
        _ => Fate::after(0),
    });
    let begin = lab.now;
    look(&mut lab, &mut hosts);
    let last = |id| hosts.table().seen(host(id)).unwrap().last_check;
    assert_eq!(lab.now.secs_since(begin), 10, "the io timeout of what hangs");
    assert_eq!((last(2), last(5), last(9)), (lab.now, looked, looked));
}
