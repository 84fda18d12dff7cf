//! Who holds a resource, as its disks say: for people and programs that look at a lease, never for those that take it. An acquire
//! reads for itself, and what it finds there counts.

use super::acquire::in_the_owners_name;
use super::blocks::insert;
use super::ops::{Verdict, Votes};
use crate::geometry::{Geometry, HostId};
use crate::record::{HostBlock, RawLeader, RequestRecord};
use crate::verify::{self, DblockError, Expect, LeaderError, Purpose};

/// A host that holds a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Holder {
    /// Its id.
    pub host: HostId,
    /// Its generation when it took the lease.
    pub generation: u64,
    /// Its clock when it took it, seconds of its own monotonic clock; `None` for a shared holder.
    pub timestamp: Option<u64>,
}

/// A resource's lease as its disks say.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Inspection {
    /// The leader in force.
    pub leader: RawLeader,
    /// Sizes of the area.
    pub geometry: Geometry,
    /// Disks whose area could be read and has a good leader.
    pub readable: usize,
    /// Whether a majority of the disks has this leader; otherwise it is the newest of several.
    pub agreed: bool,
    /// Who owns the lease exclusively. One that gave it up by the flag in its block alone, while another host's late write of the leader
    /// names it, is none.
    pub owner: Option<Holder>,
    /// The owner that the leader names although it has given the lease up.
    pub released: Option<Holder>,
    /// Who holds it shared, ascending.
    pub shared: Vec<Holder>,
    /// Hosts that take part in a ballot for a later version than the leader's, ascending: they are trying to acquire it, tried and
    /// gave up, or won while the leader is not written yet.
    pub contenders: Vec<HostId>,
    /// The request that is recorded, if there is one: version asked for, force mode.
    pub request: Option<(u64, u32)>,
    /// Blocks that are damaged; a lease with one cannot be acquired.
    pub damaged: Vec<DblockError>,
}

/// Why a lease cannot be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum InspectError {
    /// The first disk's leader is none, or not the one expected, and no majority has a better one.
    #[error(transparent)]
    Leader(LeaderError),
    /// Too few disks could be read.
    #[error("{readable} of {disks} disks of the lease can be used, a majority is needed")]
    TooFew {
        /// Disks with a good leader.
        readable: usize,
        /// Disks of the lease.
        disks: usize,
    },
    /// The leaders contradict each other.
    #[error("the leaders on the disks of the lease contradict each other")]
    Differ,
}

/// Looks at a lease. `areas`: what each of its disks has, in order, the whole area, or at least leader, request and the blocks of all
/// hosts in use; `None` for a disk that cannot be read.
///
/// # Errors
/// [`InspectError`].
pub fn inspect(areas: &[Option<&[u8]>], expect: &Expect) -> Result<Inspection, InspectError> {
    let mut votes: Votes<LeaderError> = Votes::default();
    let mut read = Vec::new();
    for area in areas.iter().flatten() {
        let leader = RawLeader::from_sector(area);
        let checked = verify::paxos(&leader, expect, Purpose::Read);
        if let Ok(geometry) = checked {
            read.push((leader, geometry, *area));
        }
        votes.put(checked.map(|_| leader));
    }
    let disks = u8::try_from(areas.len()).unwrap_or(u8::MAX);
    let majority = u32::from(disks) / 2 + 1;
    let (leader, agreed) = match votes.verdict(disks, majority, in_the_owners_name) {
        Verdict::Leader(leader) => (leader, true),
        Verdict::Newest(leader) => (leader, false),
        Verdict::Failed(error) => return Err(InspectError::Leader(error)),
        Verdict::TooFew(..) => return Err(InspectError::TooFew { readable: read.len(), disks: areas.len() }),
        Verdict::Differ => return Err(InspectError::Differ),
    };
    let geometry = verify::sizes(&leader).map_err(InspectError::Leader)?;
    let mut inspection = Inspection {
        leader,
        geometry,
        readable: read.len(),
        agreed,
        owner: None,
        released: None,
        shared: Vec::new(),
        contenders: Vec::new(),
        request: None,
        damaged: Vec::new(),
    };
    // Where disks name different numbers of hosts, nobody beyond the smaller one must be missed.
    let hosts = read.iter().map(|(leader, ..)| leader.num_hosts.get()).max().unwrap_or(0);
    let usable = read.iter().filter(|(_, sizes, _)| *sizes == geometry).map(|(.., area)| *area);
    for area in usable.clone() {
        inspection.take_request(area);
        inspection.take_blocks(area, hosts);
    }
    inspection.judge_owner(usable);
    Ok(inspection)
}

impl Inspection {
    fn sector<'a>(&self, area: &'a [u8], sector: u64) -> &'a [u8] {
        let bytes = self.geometry.sector().slice_len();
        let from = usize::try_from(sector).unwrap_or(usize::MAX).saturating_mul(bytes);
        area.get(from..from.saturating_add(bytes)).unwrap_or_default()
    }

    fn take_request(&mut self, area: &[u8]) {
        let record = RequestRecord::from_sector(self.sector(area, 1));
        let asked = (record.lver.get(), record.force_mode.get());
        if asked.0 != 0 && self.request.is_none_or(|known| known.0 < asked.0) {
            self.request = Some(asked);
        }
    }

    fn take_blocks(&mut self, area: &[u8], hosts: u64) {
        for host in (1..=hosts).map_while(HostId::new) {
            let sector = self.sector(area, host.block_sector());
            if sector.iter().all(|byte| *byte == 0) {
                continue;
            }
            let block = HostBlock::from_sector(sector);
            if block.mode.is_shared() {
                let holder = Holder { host, generation: block.mode.generation.get(), timestamp: None };
                match self.shared.binary_search_by_key(&host, |holder| holder.host) {
                    // The disks of a hold may lag behind each other: the later generation counts.
                    Ok(at) => {
                        if self.shared[at].generation < holder.generation {
                            self.shared[at] = holder;
                        }
                    }
                    Err(at) => self.shared.insert(at, holder),
                }
            }
            match verify::dblock(&block.dblock, host) {
                Err(error) if !self.damaged.contains(&error) => self.damaged.push(error),
                Err(_) => {}
                Ok(()) if block.dblock.lver.get() > self.leader.lver.get() => {
                    insert(&mut self.contenders, host)
                }
                Ok(()) => {}
            }
        }
    }

    /// The owner that the leader names, unless its own block says otherwise (lease-algorithms.md 4.4).
    fn judge_owner<'a>(&mut self, areas: impl Iterator<Item = &'a [u8]>) {
        let leader = self.leader;
        let host = HostId::new(leader.owner_id.get()).filter(|_| leader.timestamp.get() != 0);
        let Some(host) = host else { return };
        let holder = Holder {
            host,
            generation: leader.owner_generation.get(),
            timestamp: Some(leader.timestamp.get()),
        };
        let blocks = areas.map(|area| HostBlock::from_sector(self.sector(area, host.block_sector())).dblock);
        let block = blocks.reduce(|best, block| if block.written_after(&best) { block } else { best });
        // Only where somebody else may have written the leader after the owner had given it up.
        let doubtful = in_the_owners_name(&leader) || !self.agreed;
        let given_up = block.is_some_and(|block| {
            let (lver, ours) = (block.lver.get(), leader.lver.get());
            lver > ours || (block.is_released() && (lver == ours || lver == 0))
        });
        if doubtful && given_up {
            self.released = Some(holder);
        } else {
            self.owner = Some(holder);
        }
        // An owner that goes over to shared mode has both for a moment.
        self.shared.retain(|shared| Some(shared.host) != self.owner.map(|owner| owner.host));
    }

    /// Everybody who holds the lease.
    pub fn holders(&self) -> impl Iterator<Item = &Holder> {
        self.owner.iter().chain(&self.shared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Resource;
    use crate::name::Name;
    use crate::record::{DBLOCK_RELEASED, Dblock, ModeBlock};

    const EXPECT: Expect = Expect { lockspace: None, resource: None, host_id: None };

    fn name(text: &str) -> Name {
        Name::new(text.as_bytes()).unwrap()
    }

    /// A fresh lease, in each of the geometries.
    fn areas() -> impl Iterator<Item = (Geometry, Vec<u8>)> {
        Geometry::ALL.into_iter().map(|geometry| {
            let resource = Resource {
                lockspace: name("LS"),
                name: name("R"),
                geometry,
                num_hosts: geometry.max_hosts(),
                cleared_at: None,
            };
            (geometry, resource.area())
        })
    }

    fn host(id: u64) -> HostId {
        HostId::new(id).unwrap()
    }

    fn put_leader(area: &mut [u8], edit: impl FnOnce(&mut RawLeader)) {
        let mut leader = RawLeader::from_sector(area);
        edit(&mut leader);
        leader.seal();
        leader.overlay(area);
    }

    fn own(leader: &mut RawLeader, id: u64, lver: u64, writer: u64) {
        leader.owner_id = id.into();
        leader.owner_generation = 3.into();
        leader.timestamp = 77.into();
        leader.lver = lver.into();
        leader.write_id = writer.into();
    }

    fn put_block(geometry: Geometry, area: &mut [u8], id: u64, block: HostBlock) {
        let at = usize::try_from(geometry.offset_of(host(id).block_sector())).unwrap();
        block.encode(&mut area[at..at + geometry.sector().slice_len()]);
    }

    fn ballot(id: u64, lver: u64, flags: u32) -> HostBlock {
        let mut dblock = Dblock::zeroed();
        dblock.mbal = id.into();
        dblock.bal = id.into();
        dblock.inp = id.into();
        dblock.lver = lver.into();
        dblock.seal();
        dblock.flags = flags.into();
        HostBlock { dblock, mode: ModeBlock::zeroed() }
    }

    fn shared(generation: u64) -> HostBlock {
        HostBlock { dblock: Dblock::zeroed(), mode: ModeBlock::shared(generation) }
    }

    fn one(area: &[u8]) -> Inspection {
        inspect(&[Some(area)], &EXPECT).unwrap()
    }

    #[test]
    fn a_fresh_lease_has_nobody() {
        for (geometry, area) in areas() {
            let found = one(&area);
            assert_eq!((found.geometry, found.readable, found.agreed), (geometry, 1, true));
            assert_eq!(found.holders().count(), 0);
            assert_eq!(
                (found.released, found.request, found.contenders, found.damaged),
                (None, None, vec![], vec![])
            );
        }
    }

    #[test]
    fn owners_sharers_contenders_and_requests_are_found_in_every_geometry() {
        for (geometry, mut area) in areas() {
            let last = u64::from(geometry.max_hosts());
            put_leader(&mut area, |leader| own(leader, 2, 5, 2));
            put_block(geometry, &mut area, 2, ballot(2, 5, 0));
            put_block(geometry, &mut area, last, ballot(last, 6, 0));
            let sector = geometry.sector().slice_len();
            let request = RequestRecord { lver: 6.into(), force_mode: 2.into(), ..RequestRecord::none() };
            request.encode(&mut area[sector..2 * sector]);
            let found = one(&area);
            assert_eq!(found.owner, Some(Holder { host: host(2), generation: 3, timestamp: Some(77) }));
            assert_eq!((found.contenders, found.request), (vec![host(last)], Some((6, 2))));

            put_leader(&mut area, |leader| leader.timestamp = 0.into());
            put_block(geometry, &mut area, 1, shared(4));
            put_block(geometry, &mut area, last, shared(9));
            let found = one(&area);
            let ids: Vec<_> = found.holders().map(|holder| (holder.host.get(), holder.generation)).collect();
            assert_eq!((found.owner, ids), (None, vec![(1, 4), (last, 9)]));
        }
    }

    #[test]
    fn a_flag_counts_only_where_another_host_wrote_the_leader() {
        let (geometry, fresh) = areas().next().unwrap();
        for (writer, lver, flags, owned) in [
            (2, 5, DBLOCK_RELEASED, true),
            (1, 5, 0, true),
            (1, 5, DBLOCK_RELEASED, false),
            (1, 4, DBLOCK_RELEASED, true),
            (1, 6, 0, false),
        ] {
            let mut area = fresh.clone();
            put_leader(&mut area, |leader| own(leader, 2, 5, writer));
            put_block(geometry, &mut area, 2, ballot(2, lver, flags));
            let found = one(&area);
            assert_eq!(
                (found.owner.is_some(), found.released.is_some()),
                (owned, !owned),
                "{writer} {lver} {flags}"
            );
        }
    }

    #[test]
    fn of_several_disks_the_majority_counts() {
        let (geometry, fresh) = areas().next().unwrap();
        let mut held = fresh.clone();
        put_leader(&mut held, |leader| own(leader, 2, 5, 2));
        put_block(geometry, &mut held, 2, ballot(2, 5, 0));
        let (new, old) = (Some(held.as_slice()), Some(fresh.as_slice()));
        for disks in [[new, new, old], [old, new, new], [None, new, new], [new, new, None]] {
            let found = inspect(&disks, &EXPECT).unwrap();
            assert_eq!((found.agreed, found.owner.map(|owner| owner.host)), (true, Some(host(2))));
        }
        // A leader that only a minority has was decided all the same.
        let found = inspect(&[new, old], &EXPECT).unwrap();
        assert_eq!((found.agreed, found.owner.map(|owner| owner.host)), (false, Some(host(2))));
        assert_eq!(inspect(&[new, None, None], &EXPECT), Err(InspectError::TooFew { readable: 1, disks: 3 }));
        assert_eq!(inspect(&[], &EXPECT), Err(InspectError::TooFew { readable: 0, disks: 0 }));
    }

    #[test]
    fn what_is_no_lease_or_damaged_is_told() {
        let (geometry, mut area) = areas().next().unwrap();
        assert!(matches!(
            inspect(&[Some(&[0; 4096])], &EXPECT),
            Err(InspectError::Leader(LeaderError::Magic { .. }))
        ));
        assert!(matches!(
            inspect(&[Some(&[])], &EXPECT),
            Err(InspectError::Leader(LeaderError::Magic { .. }))
        ));
        let other = Expect { resource: Some(name("X")), ..EXPECT };
        assert!(matches!(
            inspect(&[Some(&area)], &other),
            Err(InspectError::Leader(LeaderError::Resource { .. }))
        ));
        let mut block = ballot(7, 1, 0);
        block.dblock.inp2 = 99.into();
        put_block(geometry, &mut area, 7, block);
        assert_eq!(one(&area).damaged.iter().map(|error| error.host).collect::<Vec<_>>(), [host(7)]);
        // An area that ends early has no more blocks.
        assert_eq!(one(&area[..4096]).damaged, []);
    }

    #[test]
    fn of_two_disks_the_later_hold_and_the_later_request_count() {
        let (geometry, fresh) = areas().next().unwrap();
        let sector = geometry.sector().slice_len();
        let disk = |generation: u64, lver: u64, mode: u32| {
            let mut area = fresh.clone();
            put_block(geometry, &mut area, 4, shared(generation));
            let request =
                RequestRecord { lver: lver.into(), force_mode: mode.into(), ..RequestRecord::none() };
            request.encode(&mut area[sector..2 * sector]);
            area
        };
        let (older, newer, like) = (disk(3, 6, 1), disk(4, 7, 2), disk(4, 7, 1));
        let look = |first: &[u8], second: &[u8]| inspect(&[Some(first), Some(second)], &EXPECT).unwrap();
        for (first, second) in [(&older, &newer), (&newer, &older), (&newer, &like)] {
            let found = look(first, second);
            assert_eq!(found.shared, [Holder { host: host(4), generation: 4, timestamp: None }]);
            assert_eq!(found.request, Some((7, 2)), "of the same version the first one");
        }
    }

    #[test]
    fn a_damage_is_told_once_however_many_disks_have_it() {
        let (geometry, mut area) = areas().next().unwrap();
        let mut block = ballot(7, 1, 0);
        block.dblock.inp2 = 99.into();
        put_block(geometry, &mut area, 7, block);
        let found = inspect(&[Some(&area), Some(&area)], &EXPECT).unwrap();
        assert_eq!(found.damaged.iter().map(|error| error.host).collect::<Vec<_>>(), [host(7)]);
        // Nor is a sector overlooked in which not one byte is zero.
        let at = usize::try_from(geometry.offset_of(host(9).block_sector())).unwrap();
        area[at..at + geometry.sector().slice_len()].fill(0xa5);
        assert_eq!(one(&area).damaged.iter().map(|error| error.host).collect::<Vec<_>>(), [host(7), host(9)]);
    }

    #[test]
    fn an_owner_that_goes_over_to_shared_mode_is_named_once() {
        let (geometry, mut area) = areas().next().unwrap();
        put_leader(&mut area, |leader| own(leader, 2, 5, 2));
        for id in [2, 6] {
            put_block(geometry, &mut area, id, shared(3));
        }
        let found = one(&area);
        assert_eq!(found.owner.map(|owner| owner.host), Some(host(2)));
        assert_eq!(found.shared.iter().map(|holder| holder.host).collect::<Vec<_>>(), [host(6)]);
    }

    /// Whatever is on the disks, an answer comes, and it names only hosts that can exist.
    #[test]
    fn no_bytes_make_it_panic() {
        let mut state = 1u64;
        let mut dice = |below: usize| {
            let number = crate::paxos::random(&mut state);
            usize::try_from(number % u64::try_from(below).unwrap()).unwrap()
        };
        for (geometry, fresh) in areas().take(2) {
            let reach = 5 * geometry.sector().slice_len();
            let mut answers = 0;
            for round in 0..400 {
                let disks: Vec<Vec<u8>> = (0..1 + dice(3))
                    .map(|_| {
                        let mut area = fresh[..reach].to_vec();
                        for _ in 0..dice(6) {
                            let at = dice(reach);
                            area[at] = u8::try_from(dice(256)).unwrap();
                        }
                        // Half of them with a sum that fits whatever stands there.
                        if round % 2 == 0 {
                            put_leader(&mut area, |leader| leader.owner_id = (dice(3000) as u64).into());
                        }
                        area
                    })
                    .collect();
                let read: Vec<Option<&[u8]>> = disks
                    .iter()
                    .map(|disk| (dice(8) > 0).then(|| &disk[..reach - dice(2) * dice(reach)]))
                    .collect();
                if let Ok(found) = inspect(&read, &EXPECT) {
                    answers += 1;
                    let hosts =
                        found.holders().map(|holder| holder.host).chain(found.contenders.iter().copied());
                    for host in hosts {
                        assert!(host.get() <= u64::from(found.geometry.max_hosts()), "{found:?}");
                    }
                }
            }
            assert!(answers > 50, "{answers}");
        }
    }
}
