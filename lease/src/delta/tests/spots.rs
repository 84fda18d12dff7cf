//! Sectors that cannot be read: only their own hosts are not looked at (docs/decisions/0022-unreadable-sectors.md).

use super::*;
use crate::delta::scan::{FAILED_READS_MAX, HostScan, ScanOutcome};
use crate::hosts::{HOSTS_PER_GROUP, HostState, HostTable};
use crate::machine::{Action, HostView, IoFailure, NoSectors, Op};
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
    bad_after(lab, ids, 1);
}

/// The same, after so many milliseconds.
fn bad_after(lab: &mut Lab, ids: &'static [u64], ms: u64) {
    let failure = Fate { after_ms: Some(ms), ..Fate::fail(EIO) };
    lab.fates(move |op| if ids.iter().any(|id| reads(op, *id)) { failure } else { Fate::after(0) });
}

/// Looks with every renewal, and when the scan wants to, for so many seconds, while all of these host ids are renewed.
fn watch(lab: &mut Lab, hosts: &mut HostScan, secs: u64, alive: &[u64], t: u64) {
    let (end, mut renewal) = (lab.now.plus_secs(secs), lab.now);
    while lab.now <= end {
        lab.now = lab.now.max(hosts.due().unwrap_or(renewal).min(renewal));
        if lab.now >= renewal {
            renewal = renewal.plus_secs(2 * t);
        }
        // While it looks as well.
        for after in (0..=4 * t).step_by(2) {
            let (at, alive) = (lab.now.plus_secs(after), alive.to_vec());
            lab.at(at, move |lab| {
                let now = lab.now.secs();
                for id in alive {
                    edit(lab, id, |leader| leader.timestamp = (7000 + now).into());
                }
            });
        }
        look(lab, hosts);
        lab.cancel_hooks();
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
            assert!(matches!(outcome.failed, Some((_, EIO))));
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

#[test]
fn parts_are_begun_until_an_io_timeout_has_passed() {
    for (part_ms, begun) in [(5_000, 3), (5_001, 2)] {
        let (mut lab, mut hosts) = area(10);
        lab.fates(move |op| match op.action {
            Action::Read { count, .. } if count > HOSTS_PER_GROUP as u64 => Fate::fail(EIO),
            _ => Fate::after(part_ms),
        });
        look(&mut lab, &mut hosts);
        let parts = lab.brief().into_iter().filter(|(_, count)| *count == HOSTS_PER_GROUP as i64);
        assert_eq!(parts.count(), begun, "of {part_ms} ms each");
    }
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
    assert_eq!(
        (last(2), last(5), last(9)),
        (begin.plus_millis(2), looked, looked),
        "when it was read itself"
    );
}

/// Joins host 300, and renews these and it for a while.
fn newcomer(lab: &mut Lab, hosts: &mut HostScan, alive: &[u64], t: u32) {
    edit(lab, 300, held_by("newcomer", 300, 1, 5));
    edit(lab, 300, |leader| leader.io_timeout = t.try_into().unwrap());
    watch(lab, hosts, 400, &[alive, &[300]].concat(), t.into());
}

/// Each failure takes more than half of the time that there is for parts.
#[test]
fn sectors_that_take_long_to_fail_hide_nobody_for_good() {
    for t in [1, 2, 10] {
        for (looked, spots) in [
            (false, &[5][..]),
            (true, &[5]),
            (true, &[5, 7]),
            (true, &[5, 25]),
            (true, &[3, 25, 290, 291]),
            (true, &[5, 705]),
        ] {
            let (mut lab, mut hosts) = area(t);
            if looked {
                look(&mut lab, &mut hosts);
            }
            bad_after(&mut lab, spots, 700 * u64::from(t));
            newcomer(&mut lab, &mut hosts, &[1, 2, 9, 20, 700], t);
            for id in [2, 9, 20, 300, 700] {
                let seen = hosts.table().seen(host(id));
                assert!(seen.is_some(), "{id}, T {t}, {spots:?}");
                let silent = lab.now.secs_since(seen.unwrap().last_check);
                assert!(
                    silent <= 14 * u64::from(t),
                    "{id} was not looked at for {silent} s, T {t}, {spots:?}"
                );
                assert_ne!(state(&lab, &hosts, id), HostState::Dead, "{id}, T {t}, {spots:?}");
            }
            assert!(hosts.table().is_complete());
        }
    }
}

/// Blocks of 4096 bytes that cannot be read, in two pieces: more than may fail in one look.
#[test]
fn bad_blocks_in_one_piece_hide_nobody_of_another() {
    const TWO: [u64; 16] = [9, 10, 11, 12, 13, 14, 15, 16, 521, 522, 523, 524, 525, 526, 527, 528];
    static MANY: [u64; 64] = {
        let mut ids = [0; 64];
        let mut n = 0;
        while n < 64 {
            ids[n] = 9 + (n % 32) as u64 + 512 * (n / 32) as u64;
            n += 1;
        }
        ids
    };
    for t in [1, 2, 10] {
        for spots in [&TWO[..], &MANY] {
            let (mut lab, mut hosts) = area(t);
            // One of them after each of the bad blocks.
            for id in [45, 514, 530, 557] {
                edit(&mut lab, id, held_by("somebody", id, 1, 5));
                edit(&mut lab, id, |leader| leader.io_timeout = t.try_into().unwrap());
            }
            look(&mut lab, &mut hosts);
            let spots: &'static [u64] = Box::leak(spots.into());
            bad(&mut lab, spots);
            let alive: Vec<u64> =
                [1, 20, 45, 514, 530, 557, 700].into_iter().filter(|id| !spots.contains(id)).collect();
            newcomer(&mut lab, &mut hosts, &alive, t);
            for id in alive.into_iter().chain([300]) {
                assert_eq!(state(&lab, &hosts, id), HostState::Live, "{id}, T {t}, {spots:?}");
            }
        }
    }
}

/// What has failed was no more than this group: its hosts are read one by one at once.
#[test]
fn where_one_group_is_in_use_its_bad_sector_hides_none_of_the_others() {
    let (mut lab, mut hosts) = area(10);
    look(&mut lab, &mut hosts);
    lab.now = lab.now.plus_secs(20);
    bad(&mut lab, &[690]);
    let begin = lab.now;
    look(&mut lab, &mut hosts);
    let seen_now = |id| hosts.table().seen(host(id)).unwrap().last_check >= begin;
    assert_eq!([689, 690, 691, 700, 704].map(seen_now), [true, false, true, true, true]);
}

/// What was found no place to begin has hung, like what was begun, but is not outstanding.
#[test]
fn a_read_that_never_began_is_not_split() {
    let (mut lab, mut hosts) = area(10);
    look(&mut lab, &mut hosts);
    let never_began = Fate { after_ms: Some(10_000), ..Fate::fail(IoFailure::TimedOut) };
    lab.fates(move |_| never_began);
    for looks in 0..20 {
        lab.now = lab.now.plus_secs(20);
        let begin = lab.now;
        let outcome = look(&mut lab, &mut hosts);
        assert!(matches!(outcome.failed, Some((_, IoFailure::TimedOut))));
        assert_eq!((lab.now.secs_since(begin), lab.trace.len()), (10, 1), "look {looks}");
    }
    let firsts: Vec<u64> = (0..4)
        .map(|_| {
            look(&mut lab, &mut hosts);
            lab.brief()[0].0 / 512
        })
        .collect();
    assert!(
        firsts.windows(2).all(|pair| pair[0] != pair[1]),
        "each begins behind the one before: {firsts:?}"
    );
    assert!(JOINED.iter().all(|id| hosts.reaches(host(*id))));
    lab.fates(|_| Fate::after(0));
    lab.now = lab.now.plus_secs(20);
    look(&mut lab, &mut hosts);
    assert!(JOINED.iter().all(|id| hosts.table().seen(host(*id)).unwrap().last_check == lab.now));
}

/// A first look is no sign of life (W11), in parts or not.
#[test]
fn who_is_seen_for_the_first_time_in_parts_is_unknown() {
    let (mut lab, mut hosts) = area(10);
    lab.fates(|op| if reads(op, 5) { Fate::fail(EIO) } else { Fate::after(10) });
    let begin = lab.now;
    look(&mut lab, &mut hosts);
    for id in [2, 9, 20, 700] {
        assert_eq!(state(&lab, &hosts, id), HostState::Unknown, "{id}");
    }
    let seen = hosts.table().seen(host(2)).unwrap();
    // What was read alone has the time when it was.
    assert_eq!(seen.first_check.millis_since(begin), 1 + 1 + 2 * 10);
    assert_eq!((seen.last_check, seen.last_live), (seen.first_check, Some(seen.first_check)));
    lab.now = lab.now.plus_secs(81);
    assert_eq!(state(&lab, &hosts, 2), HostState::Fail);
}

#[test]
fn nothing_is_left_of_parts_when_all_is_read_again() {
    let (mut lab, mut hosts) = area(10);
    look(&mut lab, &mut hosts);
    let mut other = hosts.clone();
    for spots in [&[5][..], &[300], &[5, 300, 1999], &[]] {
        bad(&mut lab, spots);
        watch(&mut lab, &mut hosts, 100, &[], 10);
    }
    // Both look at all of it at the same time.
    lab.now = lab.now.plus_secs(40);
    look(&mut lab, &mut hosts);
    lab.another_machine();
    look(&mut lab, &mut other);
    assert_eq!(hosts.table(), other.table());
}

/// What is read when of a piece with a host id in use that takes long to fail: where the one look gives up the next one begins.
#[test]
fn parts_go_on_where_they_were_given_up() {
    let (mut lab, mut hosts) = area(10);
    look(&mut lab, &mut hosts);
    bad_after(&mut lab, &[5], 7_000);
    let of_piece = |lab: &mut Lab, hosts: &mut HostScan| {
        look(lab, hosts);
        lab.brief().into_iter().filter(|(first, _)| *first < 512).collect::<Vec<_>>()
    };
    let ones = |hosts: std::ops::Range<u64>| hosts.map(|host| (host, 1));
    let groups = |hosts: std::ops::Range<u64>| hosts.step_by(16).map(|host| (host, 16));
    let all = |parts: [Vec<(u64, i64)>; 4]| parts.concat();
    // Nothing but what is in use is due.
    lab.now = lab.now.plus_secs(10);
    assert_eq!(
        of_piece(&mut lab, &mut hosts),
        all([vec![(0, 32), (0, 16)], ones(0..5).collect(), vec![], vec![]])
    );
    let went_on = all([vec![(0, 32)], ones(5..16).collect(), vec![(16, 16)], ones(0..5).collect()]);
    let last = |hosts: &HostScan, id| hosts.table().seen(host(id)).unwrap().last_check;
    // All of it is due, and has its own place to go on at.
    lab.now = lab.now.plus_secs(20);
    assert_eq!(
        of_piece(&mut lab, &mut hosts),
        all([vec![(0, 512), (0, 16)], ones(0..5).collect(), vec![], vec![]])
    );
    // In turns what is in use and all of it, each look one of them, and to the end: the place is kept.
    let groups: Vec<_> = groups(16..512).collect();
    for _ in 0..3 {
        let begin = lab.now;
        assert_eq!(of_piece(&mut lab, &mut hosts), went_on);
        assert!([2, 9, 20].iter().all(|id| last(&hosts, *id) > begin));
        let begin = lab.now;
        let read = of_piece(&mut lab, &mut hosts);
        assert_eq!(read, all([vec![(0, 512)], ones(5..16).collect(), groups.clone(), ones(0..5).collect()]));
        assert!([2, 9, 20, 400].iter().all(|id| last(&hosts, *id) > begin));
    }
}

/// Nobody gets the times of another group, and nobody of another group has times of his own.
#[test]
fn who_is_read_apart_has_the_times_of_his_group_until_he_is_read() {
    let DeltaConfig { lockspace, host: ours, io_timeout, fire, .. } = config();
    let mut table = HostTable::new(lockspace, ours, io_timeout, fire, Geometry::B512_M1);
    let at = MonoTime::from_secs;
    let look = |table: &mut HostTable, secs, first, count| {
        table.update(at(secs), &NoSectors, first, count, &mut Vec::new());
    };
    look(&mut table, 1, 0, 48);
    look(&mut table, 5, 0, 16);
    table.read_apart(20);
    look(&mut table, 9, 20, 1);
    look(&mut table, 11, 0, 16);
    look(&mut table, 13, 32, 16);
    let last = |id| table.seen(host(id)).unwrap().last_check;
    assert_eq!([4, 16, 17, 21, 22, 32, 33].map(last), [11, 11, 1, 9, 1, 1, 13].map(at));
}

#[test]
fn of_a_group_that_is_read_apart_each_host_has_times_of_its_own() {
    let DeltaConfig { lockspace, host: ours, io_timeout, fire, .. } = config();
    let mut table = HostTable::new(lockspace, ours, io_timeout, fire, Geometry::B512_M1);
    table.read_apart(0);
    for index in 0..3 {
        table.update(secs(5 + index), &NoSectors, usize::try_from(index).unwrap(), 1, &mut Vec::new());
    }
    let last = |id| table.seen(host(id)).map(|seen| seen.last_check);
    assert_eq!([1, 2, 3, 4].map(last), [Some(secs(5)), Some(secs(6)), Some(secs(7)), None]);
}
