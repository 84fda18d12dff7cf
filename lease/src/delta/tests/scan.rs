use super::*;
use crate::delta::scan::{HostScan, PIECE_BYTES, ScanOutcome};
use crate::hosts::{HostNews, HostState};
use crate::machine::{HostView, IoFailure};
use crate::testing::{Fate, Finished, Noisy};

fn scan(lab: &mut Lab, scan: &mut HostScan) -> Finished<ScanOutcome> {
    lab.rerun(&mut Noisy(scan))
}

#[test]
fn the_area_is_read_in_pieces_that_cover_every_host_once() {
    for geometry in Geometry::ALL {
        let mut lab = lab_with(geometry, 1);
        let mut hosts = HostScan::new(&config(), geometry);
        assert!(!hosts.table().is_complete());
        let finished = scan(&mut lab, &mut hosts);
        assert_eq!(finished.outcome, ScanOutcome::default());
        assert!(hosts.table().is_complete());
        let mut next = 0;
        for (first, count) in lab.brief() {
            assert_eq!(first, next);
            assert!(count > 0 && count * i64::from(geometry.sector().bytes()) <= PIECE_BYTES as i64);
            next = first + count.unsigned_abs();
        }
        assert_eq!(next, u64::from(geometry.max_hosts()));
    }
}

#[test]
fn a_piece_that_cannot_be_read_hides_no_other() {
    let mut lab = lab();
    edit(&mut lab, 2000, held_by("omega", 2000, 1, 5));
    let mut hosts = HostScan::new(&config(), Geometry::B512_M1);
    lab.fates(|op| match op.action {
        crate::machine::Action::Read { first: 512..1024, .. } => Fate::fail(IoFailure::Os(5)),
        _ => Fate::prompt(),
    });
    let finished = scan(&mut lab, &mut hosts);
    assert_eq!(finished.outcome.failed, Some((host(513), IoFailure::Os(5))));
    assert_eq!(hosts.table().seen(host(600)), None);
    assert_eq!(hosts.table().seen(host(2000)).unwrap().timestamp, 5);
    assert!(!hosts.table().is_complete());
}

#[test]
fn after_a_timeout_the_next_scan_begins_behind_the_hung_piece() {
    let mut lab = lab();
    let mut hosts = HostScan::new(&config(), Geometry::B512_M1);
    lab.fates(|op| match op.action {
        crate::machine::Action::Read { first: 512, .. } => Fate::never(),
        _ => Fate::prompt(),
    });
    let finished = scan(&mut lab, &mut hosts);
    assert_eq!(finished.outcome.failed, Some((host(513), IoFailure::TimedOut)));
    assert_eq!(hosts.table().seen(host(1025)), None);
    lab.trace.clear();
    scan(&mut lab, &mut hosts);
    assert_eq!(lab.brief()[0].0, 1024);
    assert!(hosts.table().seen(host(1025)).is_some());
    // The hung piece keeps hanging: a bounded number of reads is outstanding.
    for _ in 0..10 {
        scan(&mut lab, &mut hosts);
    }
    let hung = lab.trace.iter().filter(|t| t.brief().0 == 512).count();
    assert_eq!(hung, 3, "and the one before the trace was cleared");
}

#[test]
fn states_over_time_as_seen_with_the_original() {
    // lease-algorithms.md 3.2: T = 1 after a fresh join.
    let mut lab = lab();
    edit(&mut lab, 1, held_by("alpha", 1, 1, 900));
    edit(&mut lab, 2, held_by("beta", 2, 1, 7000));
    edit(&mut lab, 3, held_by("gone", 3, 1, 8));
    edit(&mut lab, 4, held_by("left", 4, 1, 0));
    let mut hosts = HostScan::new(&config(), Geometry::B512_M1);
    let start = lab.now;
    let mut history = Vec::new();
    for second in 0..90_u64 {
        lab.now = start.plus_secs(second);
        if second % 2 == 0 {
            edit(&mut lab, 2, |l| l.timestamp = (7000 + second).into());
            scan(&mut lab, &mut hosts);
        }
        let state = |id| hosts.table().status(host(id), lab.now).unwrap().state;
        history.push([state(1), state(2), state(3), state(4), state(5)]);
    }
    let column = |host: usize, state| {
        let seconds = history.iter().enumerate().filter(|(_, row)| row[host] == state);
        seconds.map(|(s, _)| s).collect::<Vec<_>>()
    };
    assert_eq!(column(0, HostState::Live).len(), 90, "our own id is always live");
    assert_eq!(column(1, HostState::Unknown), [0, 1]);
    assert_eq!(column(1, HostState::Live), (2..90).collect::<Vec<_>>());
    assert_eq!(column(2, HostState::Unknown), (0..=8).collect::<Vec<_>>());
    assert_eq!(column(2, HostState::Fail), (9..=68).collect::<Vec<_>>());
    assert_eq!(column(2, HostState::Dead), (69..90).collect::<Vec<_>>());
    assert_eq!(column(3, HostState::Free).len(), 90);
    assert_eq!(column(4, HostState::Free).len(), 90);
    let listed: Vec<_> = hosts.table().list(lab.now).map(|h| (h.host, h.name)).collect();
    assert_eq!(listed, [(host(1), name("alpha")), (host(2), name("beta")), (host(3), name("gone"))]);
}

#[test]
fn new_instances_events_and_bad_records_are_told() {
    let mut lab = lab();
    let mut hosts = HostScan::new(&config(), Geometry::B512_M1);
    scan(&mut lab, &mut hosts);
    edit(&mut lab, 2, held_by("beta", 2, 1, 50));
    let mut bitmap = crate::record::Bitmap::default();
    bitmap.set(host(1));
    lab.disk.edit(Place::Lockspace, SectorSize::B512, 1, |s| {
        let mut l = RawLeader::from_sector(s);
        (l.write_id, l.write_generation, l.write_timestamp) = (1.into(), 7.into(), 99.into());
        l.seal();
        l.encode(Some(&bitmap), s);
    });
    let event = crate::delta::Event { generation: 1, event: 7, data: 99 };
    let instance = HostNews::Instance { host: host(2), name: name("beta"), generation: 1 };
    let notice = HostNews::Notice { from: host(2), generation: 1, event };
    assert_eq!(scan(&mut lab, &mut hosts).outcome.news, [instance, notice]);
    assert_eq!(scan(&mut lab, &mut hosts).outcome.news, [], "unchanged: nothing to tell");
    edit(&mut lab, 2, |l| l.timestamp = 52.into());
    assert_eq!(scan(&mut lab, &mut hosts).outcome.news, [notice]);

    // A damaged checksum counts as life, once, but nothing of it is believed (W16).
    lab.now = lab.now.plus_secs(10);
    lab.disk.edit(Place::Lockspace, SectorSize::B512, 1, |s| {
        s[40] = 9; // generation
        s[152] = 60; // timestamp
    });
    let news = scan(&mut lab, &mut hosts).outcome.news;
    assert!(matches!(news[..], [HostNews::Bad { count: 1, .. }]), "{news:?}");
    let seen = hosts.table().seen(host(2)).unwrap();
    assert_eq!((seen.timestamp, seen.owner_generation), (60, 1));
    assert_eq!(seen.last_live, Some(seen.last_check));
    let told: usize = (0..200).map(|_| scan(&mut lab, &mut hosts).outcome.news.len()).sum();
    assert_eq!(told, 2, "every 100th time");
    assert_eq!(hosts.table().seen(host(2)).unwrap().last_live, seen.last_live, "while it stays as it is");
    let changed = |lab: &mut Lab| lab.disk.edit(Place::Lockspace, SectorSize::B512, 1, |s| s[152] = 61);
    changed(&mut lab);
    scan(&mut lab, &mut hosts);
    let seen = hosts.table().seen(host(2)).unwrap();
    assert_eq!((seen.timestamp, seen.last_live), (61, Some(seen.last_check)));
    edit(&mut lab, 2, |_| ());
    let news = scan(&mut lab, &mut hosts).outcome.news;
    assert_eq!(news[0], HostNews::Good { host: host(2) });
}

/// It is LIVE, and then no more, unless it says that it is free: what is damaged is not written any more, or says so by changing.
#[test]
fn a_host_whose_record_is_damaged_is_silent_while_that_does_not_change() {
    let mut lab = lab();
    edit(&mut lab, 2, held_by("beta", 2, 1, 50));
    let mut hosts = HostScan::new(&config(), Geometry::B512_M1);
    scan(&mut lab, &mut hosts);
    // Generation; timestamp, and generation; all zeros; no magic number.
    for (n, (bytes, timestamp)) in
        [(40..41, 50), (40..153, 0), (0..512, 0), (0..4, 50)].into_iter().enumerate()
    {
        edit(&mut lab, 2, held_by("beta", 2, 1, 50));
        scan(&mut lab, &mut hosts);
        lab.disk.edit(Place::Lockspace, SectorSize::B512, 1, |s| s[bytes].fill(0));
        let mut states = Vec::new();
        for _ in 0..100 {
            lab.now = lab.now.plus_secs(2);
            scan(&mut lab, &mut hosts);
            let status = hosts.table().status(host(2), lab.now).unwrap();
            assert_eq!((status.seen.timestamp, status.name), (timestamp, name("beta")), "{n}");
            states.push(status.state);
        }
        states.dedup();
        if timestamp == 0 {
            assert_eq!(states, [HostState::Free], "{n}");
        } else {
            assert_eq!(states, [HostState::Live, HostState::Fail, HostState::Dead], "{n}");
        }
        assert_eq!(hosts.table().list(lab.now).count(), usize::from(timestamp != 0), "{n}");
    }
}

/// A record that was damaged, and now is whole, says what it says, also where its fields are those that the damaged one had.
#[test]
fn what_a_mended_record_says_is_taken_in() {
    let mut lab = lab();
    edit(&mut lab, 2, held_by("beta", 2, 1, 50));
    let mut hosts = HostScan::new(&config(), Geometry::B512_M1);
    scan(&mut lab, &mut hosts);
    edit(&mut lab, 2, held_by("beta", 2, 3, 70));
    lab.disk.edit(Place::Lockspace, SectorSize::B512, 1, |s| s[168] ^= 1);
    scan(&mut lab, &mut hosts);
    assert_eq!(hosts.table().seen(host(2)).unwrap().owner_generation, 1);
    lab.now = lab.now.plus_secs(10);
    lab.disk.edit(Place::Lockspace, SectorSize::B512, 1, |s| s[168] ^= 1);
    scan(&mut lab, &mut hosts);
    let seen = hosts.table().seen(host(2)).unwrap();
    assert_eq!((seen.owner_generation, seen.timestamp, seen.last_live), (3, 70, Some(seen.last_check)));
    // Of a host of which nothing good was seen the timestamp is told.
    edit(&mut lab, 3, held_by("gamma", 3, 1, 80));
    lab.disk.edit(Place::Lockspace, SectorSize::B512, 2, |s| s[168] ^= 1);
    scan(&mut lab, &mut hosts);
    let status = hosts.table().status(host(3), lab.now).unwrap();
    assert_eq!((status.seen.timestamp, status.seen.owner_generation, status.name), (80, 0, Name::default()));
    // And of one that had left.
    edit(&mut lab, 3, held_by("gamma", 3, 1, 0));
    scan(&mut lab, &mut hosts);
    assert_eq!(hosts.table().status(host(3), lab.now).unwrap().state, HostState::Free);
    for timestamp in [90, 92, 94] {
        lab.now = lab.now.plus_secs(20);
        edit(&mut lab, 3, held_by("gamma", 3, 2, timestamp));
        lab.disk.edit(Place::Lockspace, SectorSize::B512, 2, |s| s[168] ^= 1);
        scan(&mut lab, &mut hosts);
        let status = hosts.table().status(host(3), lab.now).unwrap();
        assert_eq!((status.state, status.seen.last_live), (HostState::Live, Some(status.seen.last_check)));
        assert_ne!(status.seen.timestamp, 0);
    }
}

#[test]
fn an_area_without_records_is_no_sign_of_life() {
    let mut lab = Lab::new();
    lab.disk.add(Place::Lockspace, 1 << 20);
    let mut hosts = HostScan::new(&config(), Geometry::B512_M1);
    scan(&mut lab, &mut hosts);
    assert_eq!(hosts.table().seen(host(2)).unwrap().last_live, None);
    // A host that was there and whose sector turned to zeros did change.
    let mut lab = super::lab();
    edit(&mut lab, 2, held_by("beta", 2, 1, 50));
    let mut hosts = HostScan::new(&config(), Geometry::B512_M1);
    scan(&mut lab, &mut hosts);
    lab.disk.edit(Place::Lockspace, SectorSize::B512, 1, |s| s.fill(0));
    lab.now = lab.now.plus_secs(5);
    scan(&mut lab, &mut hosts);
    let seen = hosts.table().seen(host(2)).unwrap();
    assert_eq!(seen.last_live, Some(seen.last_check));
}

#[test]
fn what_was_seen_earlier_is_kept_for_the_next_join() {
    let mut lab = lab();
    edit(&mut lab, 3, held_by("gone", 3, 1, 8));
    let mut hosts = HostScan::new(&config(), Geometry::B512_M1);
    scan(&mut lab, &mut hosts);
    let table = hosts.table().clone();
    lab.now = lab.now.plus_secs(100);
    lab.another_machine();
    let mut again = HostScan::with_table(&config(), Geometry::B512_M1, table.clone());
    scan(&mut lab, &mut again);
    assert_eq!(again.table().status(host(3), lab.now).unwrap().state, HostState::Dead);
    let other = HostScan::with_table(&config(), Geometry::ALL[1], table);
    assert_eq!(other.table().seen(host(3)), None);
}

#[test]
fn a_read_that_comes_back_late_makes_room_for_another() {
    let mut lab = lab();
    let mut hosts = HostScan::new(&config(), Geometry::B512_M1);
    lab.fates(|op| if op.is_write() { Fate::prompt() } else { Fate::after(50_000) });
    for _ in 0..10 {
        scan(&mut lab, &mut hosts);
    }
    let hung = lab.trace.len();
    assert!(hung < 10, "a bounded number is outstanding");
    assert!(lab.pass(&mut hosts, 100).is_none());
    lab.no_faults();
    assert_eq!(scan(&mut lab, &mut hosts).outcome.failed, None);
    assert!(lab.trace.len() > hung);
}

/// Lease-algorithms.md 3.1: owner, generation and timestamp are compared, each alone is a sign of life.
#[test]
fn each_of_the_three_fields_alone_is_a_sign_of_life() {
    let changes: [fn(&mut RawLeader); 3] =
        [|l| l.owner_id = 9.into(), |l| l.owner_generation = 9.into(), |l| l.timestamp = 9.into()];
    for change in changes {
        let mut lab = lab();
        edit(&mut lab, 2, held_by("beta", 2, 1, 50));
        let mut hosts = HostScan::new(&config(), Geometry::B512_M1);
        scan(&mut lab, &mut hosts);
        lab.now = lab.now.plus_secs(5);
        edit(&mut lab, 2, change);
        scan(&mut lab, &mut hosts);
        let seen = hosts.table().seen(host(2)).unwrap();
        assert_eq!(seen.last_live, Some(seen.last_check));
    }
}

#[test]
fn a_new_name_and_a_new_generation_are_told_each_by_itself() {
    let mut lab = lab();
    edit(&mut lab, 2, held_by("beta", 2, 1, 50));
    let mut hosts = HostScan::new(&config(), Geometry::B512_M1);
    scan(&mut lab, &mut hosts);
    edit(&mut lab, 2, held_by("beta", 2, 2, 51));
    let instance = |name, generation| HostNews::Instance { host: host(2), name, generation };
    assert_eq!(scan(&mut lab, &mut hosts).outcome.news, [instance(name("beta"), 2)]);
    edit(&mut lab, 2, held_by("gamma", 2, 2, 52));
    assert_eq!(scan(&mut lab, &mut hosts).outcome.news, [instance(name("gamma"), 2)]);
    edit(&mut lab, 2, held_by("gamma", 2, 2, 53));
    assert_eq!(scan(&mut lab, &mut hosts).outcome.news, [], "and no notice without our bit");
}

/// W16: the checksum is looked at where something is to be learnt, and until a record that was bad is good again.
#[test]
fn a_checksum_is_looked_at_after_a_change_and_while_it_was_bad() {
    let mut lab = lab();
    edit(&mut lab, 2, held_by("beta", 2, 1, 50));
    let mut hosts = HostScan::new(&config(), Geometry::B512_M1);
    scan(&mut lab, &mut hosts);
    let damage =
        |lab: &mut Lab, at: usize| lab.disk.edit(Place::Lockspace, SectorSize::B512, 1, |s| s[at] ^= 1);
    damage(&mut lab, 168);
    assert_eq!(scan(&mut lab, &mut hosts).outcome.news, [], "nothing that is compared has changed");
    damage(&mut lab, 152);
    let news = scan(&mut lab, &mut hosts).outcome.news;
    assert!(matches!(news[..], [HostNews::Bad { count: 1, .. }]), "{news:?}");
    assert_eq!(scan(&mut lab, &mut hosts).outcome.news, [], "still bad");
    assert_eq!(hosts.table().bad(), 1);
    edit(&mut lab, 2, |_| ());
    assert_eq!(scan(&mut lab, &mut hosts).outcome.news, [HostNews::Good { host: host(2) }]);
    assert_eq!(hosts.table().bad(), 0);
}

#[test]
fn hosts_beyond_those_just_read_are_left_alone() {
    let mut lab = lab();
    edit(&mut lab, 17, held_by("beta", 17, 1, 50));
    let mut table = HostScan::new(&config(), Geometry::B512_M1).table().clone();
    let view = lab.disk.view(Place::Lockspace, SectorSize::B512, 0, 2000).unwrap();
    table.update(lab.now, &view, 0, 16, &mut Vec::new());
    assert_eq!(table.seen(host(17)), None);
    assert_eq!(table.list(lab.now).count(), 0);
    table.update(lab.now, &view, 16, 16, &mut Vec::new());
    let listed: Vec<_> = table.list(lab.now).map(|status| status.host).collect();
    assert_eq!(listed, [host(17)]);
}

/// A renewal of an earlier instance that lands late brings its io timeout back. The later instance may be alive, with its own.
#[test]
fn the_longest_io_timeout_since_the_newest_generation_counts() {
    let mut lab = lab();
    let mut hosts = HostScan::new(&config(), Geometry::B512_M1);
    let rows = [
        // Generation and io timeout on disk, and what is known then.
        ((5, 60), (5, 60)),
        ((4, 10), (5, 60)),
        ((4, 0), (5, 60)),
        ((3, 80), (5, 80)),
        ((2, 70), (5, 80)),
        ((5, 20), (5, 80)),
        ((5, 90), (5, 90)),
        ((4, 30), (5, 90)),
        ((6, 1), (6, 1)),
        ((7, 0), (7, 1)),
    ];
    for (row, ((generation, io_timeout), (newest, counts))) in rows.into_iter().enumerate() {
        let timestamp = 900 + u64::try_from(row).unwrap();
        edit(&mut lab, 2, held_by("beta", 2, generation, timestamp));
        edit(&mut lab, 2, |l| l.io_timeout = io_timeout.into());
        scan(&mut lab, &mut hosts);
        let seen = hosts.table().seen(host(2)).unwrap();
        assert_eq!((seen.owner_generation, seen.newest_generation), (generation, newest), "row {row}");
        assert_eq!(seen.io_timeout.secs(), counts, "row {row}");
    }
}
