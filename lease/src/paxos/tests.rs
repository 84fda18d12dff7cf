//! Tests of the paxos machines: what they read and write, in which order, and what they make of every state of the disk.
//!
//! In [`Lab`] every operation takes one millisecond, so a hook at the k-th millisecond runs just before the k-th round of
//! operations takes effect: that is how another host's steps are put between two of ours.

mod ballot;
mod counterexamples;
mod decide;
mod disks;
mod doubt;
mod faults;
mod flag;
mod foreign;
mod holders;
mod io_plan;
mod modes;
mod own;
mod owner;
mod quorums;
mod release;
mod repair;
mod shared;
mod silent;
mod stale_disks;
mod taken_back;
mod together;
mod unreached;
mod value;

use super::acquire::{AcquireOptions, AcquireOutcome, PaxosAcquire};
use super::release::{PaxosRelease, ReleaseOutcome, Released};
use super::{AcquireError, Held, PaxosConfig, ReleaseError};
use crate::code::ReturnCode;
use crate::geometry::{AlignSize, Geometry, HostId, SectorSize};
use crate::hosts::HostSeen;
use crate::machine::{Content, HostView, IoFailure, LockspaceNow, Op, Place};
use crate::name::Name;
use crate::record::{
    DBLOCK_RELEASED, DELTA_MAGIC, DELTA_VERSION, Dblock, HostBlock, MODE_SHARED, ModeBlock, PAXOS_MAGIC,
    PAXOS_VERSION, RawLeader,
};
use crate::testing::{Fate, Finished, Lab};
use crate::timing::{IoTimeout, MonoTime, WatchdogFire};
use std::rc::Rc;

const B512: SectorSize = SectorSize::B512;
const MIB: u64 = 1 << 20;
const DISK: Place = Place::Resource(0);
/// Hosts of the resource in most tests.
const NUM_HOSTS: u64 = 8;
/// Our host id in most tests.
const US: u64 = 1;

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

fn host(id: u64) -> HostId {
    HostId::new(id).unwrap()
}

fn config(id: u64) -> PaxosConfig {
    PaxosConfig {
        lockspace: name("ls"),
        resource: name("res"),
        host: host(id),
        generation: 1,
        io_timeout: IoTimeout::DEFAULT,
        fire: WatchdogFire::DEFAULT,
        geometry: Geometry::B512_M1,
        disks: 1,
    }
}

/// Something that happens to the disk or to what the machine may know.
type Change = fn(&mut Lab);

/// Who owns a leader: host id, generation, timestamp; and who wrote it.
#[derive(Clone, Copy)]
struct Owner {
    id: u64,
    generation: u64,
    timestamp: u64,
    writer: u64,
}

const NOBODY: Owner = Owner { id: 0, generation: 0, timestamp: 0, writer: 0 };

fn owned_by(id: u64, generation: u64) -> Owner {
    Owner { id, generation, timestamp: 500, writer: id }
}

fn leader(lver: u64, owner: Owner) -> RawLeader {
    let mut leader = RawLeader::zeroed();
    leader.magic = PAXOS_MAGIC.into();
    leader.version = PAXOS_VERSION.into();
    leader.flags = 0x10.into();
    leader.sector_size = 512.into();
    leader.num_hosts = NUM_HOSTS.into();
    leader.max_hosts = 2000.into();
    leader.space_name = name("ls").to_field();
    leader.resource_name = name("res").to_field();
    leader.lver = lver.into();
    leader.owner_id = owner.id.into();
    leader.owner_generation = owner.generation.into();
    leader.timestamp = owner.timestamp.into();
    leader.write_id = owner.writer.into();
    leader.seal();
    leader
}

fn delta(id: u64, generation: u64, timestamp: u64) -> RawLeader {
    let mut delta = RawLeader::zeroed();
    delta.magic = DELTA_MAGIC.into();
    delta.version = DELTA_VERSION.into();
    delta.flags = 0x10.into();
    delta.sector_size = 512.into();
    delta.max_hosts = 1.into();
    delta.space_name = name("ls").to_field();
    delta.resource_name = name("some-host").to_field();
    delta.owner_id = id.into();
    delta.owner_generation = generation.into();
    delta.timestamp = timestamp.into();
    delta.io_timeout = 10.into();
    delta.seal();
    delta
}

/// `[mbal, bal, inp, inp2, inp3, lver]`.
fn block(fields: [u64; 6]) -> HostBlock {
    let [mbal, bal, inp, inp2, inp3, lver] = fields;
    let mut dblock = Dblock::zeroed();
    dblock.mbal = mbal.into();
    dblock.bal = bal.into();
    dblock.inp = inp.into();
    dblock.inp2 = inp2.into();
    dblock.inp3 = inp3.into();
    dblock.lver = lver.into();
    dblock.seal();
    HostBlock { dblock, mode: ModeBlock::zeroed() }
}

fn released(mut block: HostBlock) -> HostBlock {
    block.dblock.flags = DBLOCK_RELEASED.into();
    block
}

fn fields(block: &HostBlock) -> [u64; 6] {
    let d = &block.dblock;
    [d.mbal, d.bal, d.inp, d.inp2, d.inp3, d.lver].map(zerocopy::little_endian::U64::get)
}

fn put(lab: &mut Lab, place: Place, sector: u64, content: Content) {
    let mut bytes = [0; 512];
    content.encode(&mut bytes);
    lab.disk.write(place, B512, sector, &bytes);
}

fn put_leader(lab: &mut Lab, leader: RawLeader) {
    put(lab, DISK, 0, Content::Leader(leader));
}

fn put_block(lab: &mut Lab, id: u64, block: HostBlock) {
    put(lab, DISK, id + 1, Content::Block(block));
}

fn put_delta(lab: &mut Lab, sector_of: u64, leader: RawLeader) {
    put(lab, Place::Lockspace, sector_of - 1, Content::Leader(leader));
}

/// A lockspace with sectors of 4096 bytes, so with 250 hosts at most, of which the last one has left; and that lockspace's sizes.
fn wide_lockspace(lab: &mut Lab) -> Geometry {
    let mut left = delta(250, 1, 0);
    left.sector_size = 4096.into();
    left.seal();
    let mut bytes = [0; 4096];
    Content::Leader(left).encode(&mut bytes);
    lab.disk.add(Place::Lockspace, MIB);
    lab.disk.write(Place::Lockspace, SectorSize::B4096, 249, &bytes);
    Geometry::new(SectorSize::B4096, AlignSize::M1).unwrap()
}

fn leader_of(lab: &Lab) -> RawLeader {
    RawLeader::from_sector(&lab.disk.sector(DISK, B512, 0))
}

fn block_of(lab: &Lab, id: u64) -> HostBlock {
    HostBlock::from_sector(&lab.disk.sector(DISK, B512, id + 1))
}

/// Owner, its generation, whether the lease is owned, version, writer.
fn state(leader: &RawLeader) -> (u64, u64, bool, u64, u64) {
    (
        leader.owner_id.get(),
        leader.owner_generation.get(),
        leader.timestamp.get() != 0,
        leader.lver.get(),
        leader.write_id.get(),
    )
}

/// A lockspace and a resource with this leader; hosts 1 to 8 joined with generation 1.
fn lab(leader: RawLeader) -> Lab {
    let mut lab = Lab::new();
    lab.disk.add(Place::Lockspace, MIB);
    lab.disk.add(DISK, MIB);
    put_leader(&mut lab, leader);
    for id in 1..=NUM_HOSTS {
        put_delta(&mut lab, id, delta(id, 1, 900));
    }
    lab
}

fn free_lab() -> Lab {
    lab(leader(0, NOBODY))
}

/// A host table with one entry.
struct Seen(u64, HostSeen);

impl HostView for Seen {
    fn seen(&self, host: HostId) -> Option<HostSeen> {
        (host.get() == self.0).then_some(self.1)
    }
}

/// A host table in which every host has just renewed, as [`lab`] has it, at this time.
struct AllAlive(MonoTime);

impl HostView for AllAlive {
    fn seen(&self, host: HostId) -> Option<HostSeen> {
        seen(host.get(), 1, 500, self.0.secs(), self.0.secs()).seen(host)
    }
}

/// Looks at the hosts reach all of them, and they are alive.
fn all_alive(lab: &mut Lab) {
    lab.hosts = Rc::new(AllAlive(lab.now));
}

/// The table says: last change of host `id`'s record at `last_live`, first and last look as given; its timestamp was 900.
fn seen(id: u64, generation: u64, first_check: u64, last_live: u64, last_check: u64) -> Rc<dyn HostView> {
    let entry = HostSeen {
        first_check: MonoTime::from_secs(first_check),
        last_check: MonoTime::from_secs(last_check),
        last_live: Some(MonoTime::from_secs(last_live)),
        owner_id: id,
        owner_generation: generation,
        timestamp: 900,
        io_timeout: IoTimeout::DEFAULT,
        newest_generation: generation,
    };
    Rc::new(Seen(id, entry))
}

fn acquire(lab: &mut Lab, options: AcquireOptions) -> Finished<AcquireOutcome> {
    acquire_as(lab, config(US), options)
}

fn acquire_as(lab: &mut Lab, config: PaxosConfig, options: AcquireOptions) -> Finished<AcquireOutcome> {
    lab.lockspace = LockspaceNow::Alive { generation: config.generation };
    lab.trace.clear();
    lab.run_noisy(&mut PaxosAcquire::new(config, options))
}

fn acquire_plain(lab: &mut Lab) -> Finished<AcquireOutcome> {
    acquire(lab, AcquireOptions::default())
}

fn nowait() -> AcquireOptions {
    AcquireOptions { owner_nowait: true, ..AcquireOptions::default() }
}

#[track_caller]
fn held(finished: &Finished<AcquireOutcome>) -> Held {
    match finished.outcome {
        AcquireOutcome::Acquired(held) => held,
        AcquireOutcome::Failed { error, .. } => panic!("not acquired: {error}"),
    }
}

/// The error, its number, and whether a retract is asked for.
#[track_caller]
fn failure(finished: &Finished<AcquireOutcome>) -> (AcquireError, i32, bool) {
    match finished.outcome {
        AcquireOutcome::Acquired(held) => panic!("acquired: {held:?}"),
        AcquireOutcome::Failed { error, retract, .. } => {
            (error, ReturnCode::from(&error).0, retract.is_some())
        }
    }
}

#[track_caller]
fn code(finished: &Finished<AcquireOutcome>) -> i32 {
    failure(finished).1
}

fn release(lab: &mut Lab, held: Held) -> Finished<ReleaseOutcome> {
    lab.trace.clear();
    lab.run_noisy(&mut PaxosRelease::new(config(US), held))
}

fn retract(lab: &mut Lab) -> Finished<ReleaseOutcome> {
    lab.trace.clear();
    lab.run_noisy(&mut PaxosRelease::retract(config(US), Geometry::B512_M1))
}

/// The n-th write (from 0) meets this fate, every other operation is prompt.
fn nth_write(lab: &mut Lab, n: usize, fate: Fate) {
    let mut writes = 0;
    lab.fates(move |op: &Op| {
        let hit = op.is_write() && writes == n;
        writes += usize::from(op.is_write());
        if hit { fate } else { Fate::prompt() }
    });
}

/// The n-th round of operations (from 0) meets this fate. All operations of one step count as one round.
fn nth_op(lab: &mut Lab, n: usize, fate: Fate) {
    let mut ops = 0;
    lab.fates(move |_| {
        ops += 1;
        if ops - 1 == n { fate } else { Fate::prompt() }
    });
}

/// Just before the k-th round of operations (from 1) takes effect.
fn before_round(lab: &mut Lab, k: u64, hook: impl FnOnce(&mut Lab) + 'static) {
    lab.at(lab.now.plus_millis(k), hook);
}

/// Rounds of an uncontended acquire, for [`before_round`].
const FIRST_READ: u64 = 1;
const WRITE_1: u64 = 2;
const READ_1: u64 = 3;
const WRITE_2: u64 = 4;
const READ_2: u64 = 5;
const COMMIT: u64 = 6;

fn writes(lab: &Lab) -> Vec<u64> {
    lab.trace.iter().filter(|t| t.op.is_write()).map(|t| t.brief().0).collect()
}
