//! CE7: the value sector. The original writes it at sector 2002 of the area whatever the sizes; with 4096-byte sectors and 1, 2 or 4 MiB
//! that lies in the area of another resource. Every write of a release with a value, over all sizes there are.

use sanlock_lease::geometry::Geometry;
use sanlock_lease::limits::LVB_SECTOR;
use sanlock_lease::machine::{
    Action, Content, Env, Input, LockspaceNow, Machine, NoHosts, NoSectors, Sectors, Step,
};
use sanlock_lease::paxos::{Held, PaxosConfig, PaxosRelease};
use sanlock_lease::record::{HostBlock, RawLeader};
use sanlock_lease::timing::{IoTimeout, MonoTime, WatchdogFire};
use sanlock_sim::layout;
use std::sync::Arc;

/// The leader, wherever it is looked for.
struct Only(Vec<u8>);

impl Sectors for Only {
    fn sector(&self, index: u64) -> Option<&[u8]> {
        (index == 0).then_some(&self.0)
    }
    fn next_in_use(&self, from: u64) -> Option<u64> {
        (from == 0).then_some(0)
    }
}

/// The sectors that a release with a value writes.
fn written(geometry: Geometry) -> Vec<u64> {
    let host = layout::host_id(1);
    let one = layout::paxos_config(host, 1, 0, IoTimeout::DEFAULT, WatchdogFire::DEFAULT);
    let config = PaxosConfig { geometry, ..one };
    let mut leader = RawLeader { sector_size: geometry.sector().bytes().into(), ..layout::free_leader(0, 8) };
    leader.flags = geometry.align().flag().into();
    leader.max_hosts = u64::from(geometry.max_hosts()).into();
    leader.lver = 1.into();
    leader.owner_id = 1.into();
    leader.owner_generation = 1.into();
    leader.timestamp = 500.into();
    leader.write_id = 1.into();
    leader.seal();
    let mut sector = vec![0; geometry.sector().slice_len()];
    Content::Leader(leader).encode(&mut sector);
    let disk = Only(sector);
    let held = Held { leader, block: HostBlock::zeroed(), geometry };
    let value: Arc<[u8]> = vec![7; geometry.sector().slice_len()].into();
    let mut machine = PaxosRelease::new(config, held).with_value(Some(value));
    let lockspace = LockspaceNow::Alive { generation: 1 };
    let env = Env { lockspace, client_alive: true, shutting_down: false, hosts: &NoHosts };
    let now = MonoTime::from_secs(600);
    let (mut sectors, mut step) = (Vec::new(), machine.step(now, &env, Input::Start));
    while let Step::Io(ops) = step {
        // Only the last of those that were started together has the machine go on.
        step = Step::Pending;
        for op in ops {
            let result: sanlock_lease::machine::View<'_> = match op.action {
                Action::Write { sector, .. } => {
                    sectors.push(sector);
                    &NoSectors
                }
                Action::Read { .. } => &disk,
            };
            step = machine.step(now, &env, Input::Completed { op: op.id, result: Ok(result) });
        }
    }
    sectors
}

/// The resource and its sector that a sector beyond an area's end is, counted from the area.
fn elsewhere(geometry: Geometry, sector: u64) -> Option<(u64, u64)> {
    let sectors = geometry.align().bytes() / u64::from(geometry.sector().bytes());
    (sector >= sectors).then_some((sector / sectors, sector % sectors))
}

#[test]
fn ce7_ours_writes_no_sector_outside_the_area_of_its_resource() {
    for geometry in Geometry::ALL {
        let sectors = written(geometry);
        assert!(
            sectors.iter().all(|sector| elsewhere(geometry, *sector).is_none()),
            "{geometry:?} {sectors:?}"
        );
        assert_eq!(sectors.contains(&LVB_SECTOR), geometry.lvb_fits(), "{geometry:?}");
        // Where there is room the release goes through; where there is none nobody gets that far.
        assert_eq!(sectors.contains(&0), geometry.lvb_fits(), "{geometry:?}");
    }
}

/// The original's rule is one sector for all sizes: the search finds the sizes for which it is another resource's, and whose block.
#[test]
fn ce7_one_sector_for_all_sizes_is_a_block_of_another_resource() {
    let found: Vec<_> =
        Geometry::ALL.into_iter().filter_map(|g| Some((g, elsewhere(g, LVB_SECTOR)?))).collect();
    println!("{found:?}");
    assert_eq!(found.len(), 3, "{found:?}");
    let (smallest, (resource, sector)) = found[0];
    // R1's value in R8, on the block of host 209.
    assert_eq!((smallest.align().bytes() >> 20, 1 + resource, sector - 1), (1, 8, 209));
    assert!(found.iter().all(|(geometry, _)| !geometry.lvb_fits()));
}
