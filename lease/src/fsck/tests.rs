//! How long a lockspace is watched.

use super::{Gone, Silence, Verdict};
use crate::format::Lockspace;
use crate::geometry::{Geometry, HostId};
use crate::name::Name;
use crate::record::RawLeader;
use crate::timing::{IoTimeout, MonoTime, WatchdogFire};

const SIZES: Geometry = Geometry::B512_M1;

fn host(id: u64) -> HostId {
    HostId::new(id).unwrap()
}

fn name() -> Name {
    Name::new(b"LS").unwrap()
}

fn secs(s: u64) -> MonoTime {
    MonoTime::from_secs(s)
}

/// A lockspace in which nobody ever was.
fn lockspace() -> Vec<u8> {
    let format = Lockspace { name: name(), geometry: SIZES, io_timeout: IoTimeout::DEFAULT };
    let mut area = format.area();
    let first = format.first_sector();
    area[..first.len()].copy_from_slice(&first);
    area
}

/// Host `id` holds (or held) its host id.
fn write(area: &mut [u8], id: u64, generation: u64, timestamp: u64, io_timeout: u16) {
    let at = host(id).index() * 512;
    let mut record = RawLeader::from_sector(&area[at..]);
    record.owner_id = id.into();
    record.owner_generation = generation.into();
    record.timestamp = timestamp.into();
    record.io_timeout = io_timeout.into();
    record.seal();
    record.encode(None, &mut area[at..at + 512]);
}

fn watch(area: &[u8], who: &[Gone], claims: &[(HostId, u64)]) -> Silence {
    let unknown = IoTimeout::new(255).unwrap();
    Silence::new(secs(1000), area, (SIZES, name()), who, claims, unknown, WatchdogFire::DEFAULT)
}

fn wait(until: u64, hosts: usize) -> Verdict {
    Verdict::Wait { until: secs(until), hosts }
}

#[test]
fn an_empty_lockspace_has_nobody_alive() {
    let mut area = lockspace();
    write(&mut area, 3, 7, 0, 10);
    let silence = watch(&area, &[Gone::Everybody], &[(host(3), 7)]);
    assert_eq!(silence.look(secs(1000), &area), Verdict::Gone);
}

#[test]
fn a_held_host_id_is_waited_for_as_long_as_its_io_timeout_says() {
    let mut area = lockspace();
    write(&mut area, 3, 7, 500, 10);
    write(&mut area, 4, 1, 500, 20);
    let silence = watch(&area, &[Gone::Everybody], &[]);
    assert_eq!(silence.look(secs(1000), &area), wait(1221, 2));
    assert_eq!(silence.look(secs(1140), &area), wait(1221, 2), "140 s is not longer than 140 s");
    assert_eq!(silence.look(secs(1141), &area), wait(1221, 1));
    assert_eq!(silence.look(secs(1220), &area), wait(1221, 1));
    assert_eq!(silence.look(secs(1221), &area), Verdict::Gone);
}

#[test]
fn whoever_renews_joins_or_leaves_is_alive() {
    let mut area = lockspace();
    write(&mut area, 3, 7, 500, 10);
    let silence = watch(&area, &[Gone::Everybody], &[]);
    for (id, generation, timestamp) in [(3, 7, 501), (3, 7, 0), (5, 1, 9)] {
        let mut later = area.clone();
        write(&mut later, id, generation, timestamp, 10);
        assert_eq!(silence.look(secs(1001), &later), Verdict::Alive(host(id)));
        assert_eq!(silence.look(secs(9999), &later), Verdict::Alive(host(id)), "however late it is seen");
    }
}

#[test]
fn only_the_hosts_that_matter_are_watched() {
    let mut area = lockspace();
    write(&mut area, 3, 7, 500, 10);
    write(&mut area, 4, 1, 500, 10);
    let silence = watch(&area, &[Gone::Host(host(4))], &[]);
    write(&mut area, 3, 7, 501, 10);
    assert_eq!(silence.look(secs(1000), &area), wait(1141, 1));
    assert_eq!(silence.look(secs(1141), &area), Verdict::Gone);
}

#[test]
fn what_cannot_be_believed_counts_as_held_with_the_longest_io_timeout() {
    let mut damaged = lockspace();
    write(&mut damaged, 3, 7, 0, 10);
    damaged[2 * 512 + 40] ^= 1;
    let mut empty = lockspace();
    empty[2 * 512..3 * 512].fill(0);
    let mut misplaced = lockspace();
    write(&mut misplaced, 3, 7, 0, 10);
    misplaced.copy_within(2 * 512..3 * 512, 8 * 512);
    for (area, who) in [(damaged, 3), (empty, 3), (misplaced, 9)] {
        let silence = watch(&area, &[Gone::Host(host(who))], &[]);
        assert_eq!(silence.look(secs(1000), &area), wait(1000 + 8 * 255 + 60 + 1, 1));
    }
    // A free record that is older than the owner of a lease says nothing of that owner.
    let mut older = lockspace();
    write(&mut older, 3, 7, 0, 10);
    let silence = watch(&older, &[Gone::Everybody], &[(host(3), 8)]);
    assert_eq!(silence.look(secs(1000), &older), wait(1000 + 8 * 255 + 60 + 1, 1));
}

#[test]
fn a_lockspace_that_can_no_longer_be_read_in_full_is_no_proof_of_death() {
    let mut area = lockspace();
    write(&mut area, 2000, 7, 500, 10);
    let silence = watch(&area, &[Gone::Everybody], &[]);
    assert_eq!(silence.look(secs(9999), &area[..1 << 19]), Verdict::Alive(host(1025)));
}
