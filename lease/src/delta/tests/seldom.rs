//! Host ids that were never used are read seldom, and soon enough (docs/decisions/0015-unused-host-ids.md).

use super::*;
use crate::delta::scan::{HostScan, STUCK_READS_MAX, STUCK_READS_OF_PIECE_MAX, STUCK_WHOLE_READS_MAX};
use crate::hosts::{HOSTS_PER_GROUP, HostNews, HostTable};
use crate::machine::{Action, Env, HostView, Input, IoFailure, LockspaceNow, Machine, NoHosts, Step};
use crate::testing::{Fate, Noisy};

/// As [`config`], with another io timeout.
fn config_of(io_timeout: u32) -> DeltaConfig {
    DeltaConfig { io_timeout: timeout(io_timeout), ..config() }
}

fn look(lab: &mut Lab, hosts: &mut HostScan) -> Vec<HostNews> {
    lab.rerun(&mut Noisy(hosts)).outcome.news
}

/// First sectors and numbers of sectors that the last look read.
fn reads(lab: &mut Lab) -> Vec<(u64, u64)> {
    let read = |(first, count): (u64, i64)| (first, count.unsigned_abs());
    let reads = lab.brief().into_iter().map(read).collect();
    lab.trace.clear();
    reads
}

const ALL: [(u64, u64); 4] = [(0, 512), (512, 512), (1024, 512), (1536, 464)];

#[test]
fn between_two_whole_looks_only_what_was_ever_in_use_is_read() {
    let mut lab = lab_with(Geometry::B512_M1, 10);
    edit(&mut lab, 1, held_by("alpha", 1, 1, 5));
    edit(&mut lab, 8, held_by("eight", 8, 1, 5));
    // Given back long ago, but used once.
    edit(&mut lab, 700, held_by("left", 700, 3, 0));
    edit(&mut lab, 2000, held_by("omega", 2000, 1, 5));
    lab.fates(|_| Fate::after(0));
    let mut hosts = HostScan::new(&config_of(10), Geometry::B512_M1);
    assert_eq!(hosts.due(), None, "the first look comes with the join");
    let begin = lab.now;
    look(&mut lab, &mut hosts);
    assert_eq!(reads(&mut lab), ALL);
    assert_eq!(hosts.due(), Some(begin.plus_secs(39)));
    for _ in 0..2 {
        lab.now = lab.now.plus_secs(18);
        look(&mut lab, &mut hosts);
        assert_eq!(reads(&mut lab), [(0, 16), (688, 16), (1984, 16)]);
        assert_eq!(hosts.table().seen(host(1)).unwrap().last_check, lab.now);
        assert_eq!(hosts.due(), Some(begin.plus_secs(39)));
    }
    lab.now = begin.plus_secs(39);
    look(&mut lab, &mut hosts);
    assert_eq!(reads(&mut lab), ALL);
    assert_eq!(hosts.due(), Some(begin.plus_secs(78)));
}

#[test]
fn with_an_io_timeout_of_one_second_every_look_is_at_all() {
    let mut lab = lab();
    let mut hosts = HostScan::new(&config(), Geometry::B512_M1);
    for _ in 0..3 {
        look(&mut lab, &mut hosts);
        assert_eq!(reads(&mut lab), ALL);
        assert_eq!(hosts.due(), None);
        lab.now = lab.now.plus_secs(2);
    }
}

#[test]
fn spans_are_whole_groups_and_never_leave_the_area() {
    for geometry in Geometry::ALL {
        let max = u64::from(geometry.max_hosts());
        let mut lab = Lab::new();
        lab.disk.add(Place::Lockspace, geometry.align().bytes());
        let slice = geometry.sector();
        for id in [max / 2, max] {
            let mut leader = record(&lab_with(geometry, 10), 1);
            held_by("somebody", id, 1, 5)(&mut leader);
            leader.seal();
            lab.disk
                .edit(Place::Lockspace, slice, host(id).delta_sector(), |sector| leader.encode(None, sector));
        }
        let mut hosts = HostScan::new(&config_of(10), geometry);
        look(&mut lab, &mut hosts);
        lab.trace.clear();
        lab.now = lab.now.plus_secs(20);
        look(&mut lab, &mut hosts);
        let found = reads(&mut lab);
        assert_eq!(found.len(), 2, "{geometry:?}: {found:?}");
        for (first, count) in found {
            assert_eq!(first % HOSTS_PER_GROUP as u64, 0);
            assert!(count <= HOSTS_PER_GROUP as u64 && first + count <= max, "{first} {count}");
        }
        assert_eq!(hosts.table().seen(host(max)).unwrap().last_check, lab.now);
    }
}

/// As many as there are groups of host ids.
const STRANGERS: u64 = 123;

/// How many strangers are overlooked whose bit stands for two renewals of theirs, by a watcher that looks at unused host ids this often.
/// Each comes a little later in the rhythm of the looks than the one before.
fn overlooked(io_timeout: u32, every: Option<u64>) -> u64 {
    let interval = timeout(io_timeout).renewal_secs();
    let mut lab = lab_with(Geometry::B512_M1, io_timeout);
    edit(&mut lab, 1, held_by("alpha", 1, 1, 5));
    let mut hosts = HostScan::new(&config_of(io_timeout), Geometry::B512_M1);
    if let Some(every) = every {
        hosts.look_every(every);
    }
    // When strangers write what, in milliseconds. Each is in a group of host ids of its own, beyond all that is in use.
    let mut writes = Vec::new();
    for n in 1..=STRANGERS {
        let (id, from) = (16 * n + 1, lab.now.millis() + n * (5 * interval * 1000 + 7_919));
        for (renewal, bit) in [(0, true), (1, true), (2, false)] {
            writes.push((from + renewal * interval * 1000, id, renewal, bit));
        }
    }
    let mut bits = crate::record::Bitmap::default();
    bits.set(host(1));
    let mut noticed = std::collections::BTreeSet::new();
    let mut renewal = lab.now;
    let mut writes = writes.into_iter().peekable();
    while let Some((at, ..)) = writes.peek().copied() {
        let next = hosts.due().unwrap_or(renewal).min(renewal);
        if at < next.millis() {
            let Some((at, id, renewal, bit)) = writes.next() else { break };
            lab.now = MonoTime::from_millis(at);
            edit(&mut lab, id, held_by("stranger", id, 1, 500 + renewal));
            lab.disk.edit(Place::Lockspace, SectorSize::B512, host(id).delta_sector(), |sector| {
                let leader = RawLeader::from_sector(sector);
                leader.encode(bit.then_some(&bits), sector);
            });
            continue;
        }
        lab.now = next;
        if next == renewal {
            renewal = renewal.plus_secs(interval);
        }
        for news in look(&mut lab, &mut hosts) {
            if let HostNews::Notice { from, .. } = news {
                noticed.insert(from);
            }
        }
        lab.trace.clear();
    }
    STRANGERS - noticed.len() as u64
}

#[test]
fn no_bit_of_6t_is_overlooked_and_a_longer_pause_would_overlook_some() {
    for t in [1, 2, 3, 10, 20] {
        assert_eq!(overlooked(t, None), 0, "T {t}");
    }
    // At the least, the pause ends with the stranger's second renewal.
    for t in [2, 10, 20] {
        assert!(overlooked(t, Some(4 * u64::from(t) + 3)) > 0, "T {t}: with every second of our renewals");
    }
}

#[test]
fn a_whole_look_that_failed_is_tried_again_after_a_second_and_then_with_the_renewals() {
    let mut lab = lab_with(Geometry::B512_M1, 10);
    lab.fates(|_| Fate::after(0));
    let mut hosts = HostScan::new(&config_of(10), Geometry::B512_M1);
    let begin = lab.now;
    lab.fates(|op| match op.action {
        Action::Read { first: 512, .. } => Fate::fail(IoFailure::Os(5)),
        _ => Fate::after(0),
    });
    look(&mut lab, &mut hosts);
    let again = hosts.due().unwrap();
    assert_eq!(again, lab.now.plus_secs(1));
    lab.now = again;
    lab.trace.clear();
    look(&mut lab, &mut hosts);
    let read = reads(&mut lab);
    assert_eq!(read[0], (512, 512));
    assert!(read.iter().all(|(first, _)| (512..1024).contains(first)), "and nothing that was read just now");
    assert_eq!(hosts.due(), Some(begin.plus_secs(39)), "of the other pieces");
    lab.now = begin.plus_secs(20);
    lab.fates(|_| Fate::after(0));
    look(&mut lab, &mut hosts);
    assert_eq!(reads(&mut lab), [(512, 512)]);
    assert!(hosts.table().is_complete());
    assert_eq!(hosts.due(), Some(begin.plus_secs(39)));
}

/// Hosts in use are seen, and their bits, whatever happens to a host id of the same piece that nobody uses.
#[test]
fn a_bad_spot_among_unused_host_ids_hides_nobody() {
    let fates = [Fate::fail(IoFailure::Os(5)), Fate::after(25_000), Fate::never()];
    for (io_timeout, fate) in [1, 10].into_iter().flat_map(|t| fates.map(|fate| (t, fate))) {
        let mut lab = lab_with(Geometry::B512_M1, io_timeout);
        edit(&mut lab, 1, held_by("alpha", 1, 1, 5));
        edit(&mut lab, 20, held_by("twenty", 20, 1, 5));
        let mut hosts = HostScan::new(&config_of(io_timeout), Geometry::B512_M1);
        lab.fates(|_| Fate::after(0));
        look(&mut lab, &mut hosts);
        // The sector of host id 300: whoever reads it waits in vain, or is refused.
        lab.fates(move |op| match op.action {
            Action::Read { first, count } if (first..first + count).contains(&299) => fate,
            _ => Fate::after(0),
        });
        let mut missed = 0;
        for _ in 0..20 {
            lab.now = lab.now.plus_secs(2 * u64::from(io_timeout));
            let before = lab.now;
            look(&mut lab, &mut hosts);
            missed += u32::from(hosts.table().seen(host(20)).unwrap().last_check < before);
        }
        assert!(
            missed <= 1,
            "only the look that meets the spot has nothing of its piece: {missed}, T {io_timeout}, {fate:?}"
        );
    }
}

/// Reads that never end hold memory and places in the queue of the renewals: there is an end to them, first among unused host ids.
#[test]
fn reads_that_never_end_are_few_and_leave_room_for_hosts_in_use() {
    let mut lab = lab_with(Geometry::B512_M1, 10);
    edit(&mut lab, 1, held_by("alpha", 1, 1, 5));
    edit(&mut lab, 600, held_by("six", 600, 1, 5));
    let mut hosts = HostScan::new(&config_of(10), Geometry::B512_M1);
    lab.fates(|_| Fate::after(0));
    look(&mut lab, &mut hosts);
    // Whatever is as large as a piece, and the group of host id 600.
    lab.fates(|op| match op.action {
        Action::Read { first, count } if count > 16 || first >= 500 => Fate::after(5_000_000),
        _ => Fate::after(0),
    });
    reads(&mut lab);
    let mut unseen = 0;
    for _ in 0..40 {
        lab.now = lab.now.plus_secs(20);
        let before = lab.now;
        look(&mut lab, &mut hosts);
        unseen += usize::from(hosts.table().seen(host(1)).unwrap().last_check < before);
    }
    assert!(
        unseen <= STUCK_WHOLE_READS_MAX + STUCK_READS_OF_PIECE_MAX,
        "each read that hangs ends a look: {unseen}"
    );
    let hangs = |(_, count): &&(u64, u64)| *count > 16;
    let reads = reads(&mut lab);
    let of_600 = reads.iter().filter(|(first, count)| *first >= 500 && *count == 16).count();
    let whole = reads.iter().filter(hangs).count();
    assert!((1..=STUCK_WHOLE_READS_MAX).contains(&whole), "{whole}");
    assert!((1..=STUCK_READS_OF_PIECE_MAX).contains(&of_600), "{of_600}");
    assert!(hosts.reaches(host(1)) && !hosts.reaches(host(600)) && !hosts.reaches(host(7)));
    // Those that end make room again.
    lab.pass(&mut hosts, 5_000);
    assert!(hosts.reaches(host(600)) && hosts.reaches(host(7)));
    lab.fates(|_| Fate::after(0));
    look(&mut lab, &mut hosts);
    look(&mut lab, &mut hosts);
    assert!(hosts.table().seen(host(600)).unwrap().last_check >= lab.now);
}

/// Each of them holds a buffer for as long as it hangs.
#[test]
fn when_nothing_comes_back_no_more_reads_are_started_than_there_may_be() {
    const IN_USE: [u64; 4] = [1, 600, 1100, 1600];
    let mut lab = lab_with(Geometry::B512_M1, 10);
    for id in IN_USE {
        edit(&mut lab, id, held_by("somebody", id, 1, 5));
    }
    let mut hosts = HostScan::new(&config_of(10), Geometry::B512_M1);
    look(&mut lab, &mut hosts);
    reads(&mut lab);
    lab.fates(|_| Fate::after(5_000_000));
    for _ in 0..40 {
        lab.now = lab.now.plus_secs(20);
        look(&mut lab, &mut hosts);
    }
    assert_eq!(reads(&mut lab).len(), STUCK_READS_MAX);
    assert!(IN_USE.iter().all(|id| !hosts.reaches(host(*id))));
    lab.pass(&mut hosts, 5_000);
    assert!(IN_USE.iter().all(|id| hosts.reaches(host(*id))));
}

/// Parts of what has failed are many reads; that of all hosts in use of a piece is one.
#[test]
fn while_four_reads_hang_hosts_in_use_are_tried_in_each_look_but_not_in_parts() {
    for hang in [STUCK_WHOLE_READS_MAX - 1, STUCK_WHOLE_READS_MAX] {
        let mut lab = lab_with(Geometry::B512_M1, 1);
        edit(&mut lab, 1, held_by("alpha", 1, 1, 5));
        edit(&mut lab, 20, held_by("twenty", 20, 1, 5));
        let mut hosts = HostScan::new(&config(), Geometry::B512_M1);
        look(&mut lab, &mut hosts);
        lab.fates(|op| match op.action {
            Action::Read { count: 33.., .. } => Fate::never(),
            _ => Fate::after(0),
        });
        for _ in 0..hang {
            look(&mut lab, &mut hosts);
        }
        lab.fates(|op| match op.action {
            Action::Read { first, count } if (first..first + count).contains(&4) => {
                Fate::fail(IoFailure::Os(5))
            }
            _ => Fate::after(0),
        });
        reads(&mut lab);
        for _ in 0..3 {
            lab.now = lab.now.plus_secs(2);
            let begin = lab.now;
            look(&mut lab, &mut hosts);
            let of_piece: Vec<_> = reads(&mut lab).into_iter().filter(|(first, _)| *first < 512).collect();
            let in_parts = hang < STUCK_WHOLE_READS_MAX;
            assert_eq!(of_piece.len() > 1, in_parts, "{of_piece:?}");
            assert!(in_parts || of_piece == [(0, 32)], "{of_piece:?}");
            assert_eq!(hosts.table().seen(host(20)).unwrap().last_check >= begin, in_parts);
        }
        lab.fates(|_| Fate::after(0));
        lab.now = lab.now.plus_secs(2);
        look(&mut lab, &mut hosts);
        assert_eq!(hosts.table().seen(host(20)).unwrap().last_check, lab.now);
    }
}

#[test]
fn hosts_in_use_whose_read_hung_are_read_with_all_of_their_piece_when_that_is_due() {
    let mut lab = lab_with(Geometry::B512_M1, 10);
    edit(&mut lab, 1, held_by("alpha", 1, 1, 5));
    let mut hosts = HostScan::new(&config_of(10), Geometry::B512_M1);
    lab.fates(|_| Fate::after(0));
    look(&mut lab, &mut hosts);
    let due = hosts.due().unwrap();
    lab.now = lab.now.plus_secs(20);
    lab.fates(|_| Fate::after(12_000));
    look(&mut lab, &mut hosts);
    lab.pass(&mut hosts, 5);
    lab.fates(|_| Fate::after(0));
    lab.now = due;
    reads(&mut lab);
    look(&mut lab, &mut hosts);
    let mut read = reads(&mut lab);
    read.sort_unstable();
    assert_eq!(read, ALL);
}

/// Once the read of hosts in use has failed, all of the piece comes first; but that may hang where they need not.
#[test]
fn after_all_of_a_piece_hung_its_hosts_in_use_come_first_again() {
    let mut lab = lab_with(Geometry::B512_M1, 10);
    edit(&mut lab, 1, held_by("alpha", 1, 1, 5));
    let mut hosts = HostScan::new(&config_of(10), Geometry::B512_M1);
    look(&mut lab, &mut hosts);
    lab.now = lab.now.plus_secs(40);
    lab.fates(|op| match op.action {
        Action::Read { first: 0, .. } => Fate::fail(IoFailure::Os(5)),
        _ => Fate::after(0),
    });
    // All of it, then what is in use.
    look(&mut lab, &mut hosts);
    look(&mut lab, &mut hosts);
    lab.fates(|op| match op.action {
        Action::Read { first: 0, count: 512 } => Fate::never(),
        _ => Fate::after(0),
    });
    reads(&mut lab);
    for of_piece in [&[(0, 512)][..], &[(0, 16), (0, 512)]] {
        lab.now = lab.now.plus_secs(20);
        look(&mut lab, &mut hosts);
        let read: Vec<_> = reads(&mut lab).into_iter().filter(|(first, _)| *first == 0).collect();
        assert_eq!(read, of_piece);
    }
}

/// Each piece is read a little after the one before, cycle after cycle.
#[test]
fn whole_looks_stay_together() {
    let mut lab = lab_with(Geometry::B512_M1, 10);
    edit(&mut lab, 1, held_by("alpha", 1, 1, 5));
    lab.fates(|_| Fate::after(10));
    let mut hosts = HostScan::new(&config_of(10), Geometry::B512_M1);
    look(&mut lab, &mut hosts);
    for cycle in 0..5 {
        lab.trace.clear();
        lab.now = hosts.due().unwrap();
        look(&mut lab, &mut hosts);
        assert_eq!(reads(&mut lab), ALL, "cycle {cycle}");
    }
}

/// What a read shows may be as old as its submission: the next one counts from there.
#[test]
fn the_age_of_a_look_counts_from_when_it_was_asked_for() {
    let mut lab = lab_with(Geometry::B512_M1, 10);
    lab.fates(|_| Fate::after(0));
    let mut hosts = HostScan::new(&config_of(10), Geometry::B512_M1);
    let begin = lab.now;
    lab.fates(|_| Fate::after(2_000));
    look(&mut lab, &mut hosts);
    assert_eq!(lab.now, begin.plus_secs(8), "four reads");
    assert_eq!(hosts.due(), Some(begin.plus_secs(39)));
}

#[test]
fn of_each_piece_only_its_own_hosts_in_use_are_read() {
    let mut lab = lab_with(Geometry::B512_M1, 10);
    // The last one of the first group, and the first one of the next piece.
    edit(&mut lab, 1, held_by("alpha", 1, 1, 5));
    edit(&mut lab, 513, held_by("next", 513, 1, 5));
    let mut hosts = HostScan::new(&config_of(10), Geometry::B512_M1);
    lab.fates(|_| Fate::after(0));
    look(&mut lab, &mut hosts);
    assert_eq!(reads(&mut lab), ALL);
    lab.now = lab.now.plus_secs(20);
    look(&mut lab, &mut hosts);
    assert_eq!(reads(&mut lab), [(0, 16), (512, 16)]);
}

#[test]
fn nothing_is_due_while_it_looks() {
    let mut lab = lab_with(Geometry::B512_M1, 10);
    edit(&mut lab, 1, held_by("alpha", 1, 1, 5));
    let mut hosts = HostScan::new(&config_of(10), Geometry::B512_M1);
    lab.fates(|_| Fate::after(0));
    look(&mut lab, &mut hosts);
    assert!(hosts.due().is_some());
    let lockspace = LockspaceNow::Alive { generation: 1 };
    let env = Env { lockspace, client_alive: true, shutting_down: false, hosts: &NoHosts };
    assert!(matches!(hosts.step(lab.now, &env, Input::Start), Step::Io(_)));
    assert_eq!(hosts.due(), None);
}

/// However much more was read.
#[test]
fn of_what_was_read_those_hosts_are_taken_in_that_are_named() {
    let mut lab = lab_with(Geometry::B512_M1, 10);
    for id in [1, 17] {
        edit(&mut lab, id, held_by("somebody", id, 1, 5));
    }
    let view = lab.disk.view(Place::Lockspace, SectorSize::B512, 0, 32).unwrap();
    let mut table =
        HostTable::new(name("ls"), host(1), timeout(10), WatchdogFire::DEFAULT, Geometry::B512_M1);
    let mut news = Vec::new();
    for (count, seen) in [(16, false), (32, true)] {
        table.update(lab.now, &view, 0, count, &mut news);
        assert_eq!(table.status(host(17), lab.now).is_some(), seen, "{count}");
        assert_eq!(news.len(), 1 + usize::from(seen), "{news:?}");
        assert!(table.status(host(1), lab.now).is_some());
    }
}

/// Of an area that was never formatted too, where what lies between two records is not looked at.
#[test]
fn the_first_host_behind_those_that_are_named_is_not_taken_in() {
    let mut lab = Lab::new();
    lab.disk.add(Place::Lockspace, Geometry::B512_M1.align().bytes());
    let mut leader = record(&super::lab(), 1);
    held_by("somebody", 17, 1, 5)(&mut leader);
    leader.seal();
    lab.disk.edit(Place::Lockspace, SectorSize::B512, 16, |sector| leader.encode(None, sector));
    let view = lab.disk.view(Place::Lockspace, SectorSize::B512, 0, 32).unwrap();
    let mut table = HostScan::new(&config(), Geometry::B512_M1).table().clone();
    let mut news = Vec::new();
    table.update(lab.now, &view, 0, 16, &mut news);
    assert_eq!((news.len(), table.list(lab.now).count()), (0, 0), "{news:?}");
    table.update(lab.now, &view, 16, 16, &mut news);
    assert!(matches!(news[..], [HostNews::Instance { .. }]), "{news:?}");
}

/// Or a lockspace with room for 2000 hosts would take as much memory as one that has them.
#[test]
fn nothing_is_kept_of_host_ids_that_were_never_used() {
    let mut blank = Lab::new();
    blank.disk.add(Place::Lockspace, Geometry::B512_M1.align().bytes());
    let [blank, formatted] = [blank, lab()].map(|mut lab| {
        let mut hosts = HostScan::new(&config(), Geometry::B512_M1);
        look(&mut lab, &mut hosts);
        hosts.table().clone()
    });
    assert!(blank == formatted, "there is nothing to remember of a free record");
}
