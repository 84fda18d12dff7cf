//! Disk records: whatever a sector holds can be decoded, judged and written back.

use sanlock_lease::geometry::HostId;
use sanlock_lease::limits::HOSTS_MAX;
use sanlock_lease::record::{
    Bitmap, DELTA_MAGIC, HostBlock, PAXOS_MAGIC, RawLeader, RequestRecord, RindexEntry, RindexHeader,
};
use sanlock_lease::verify::{self, Expect, Purpose};

use crate::data::Data;

/// Bytes of a leader that its checksum covers.
const SUMMED: usize = 168;
/// Bytes of a record.
const LEADER: usize = 200;

/// One sector, or less: the first byte says what the reader expects, the rest are the sector's bytes.
///
/// * Nothing panics, whatever is in it and however short it is.
/// * A record that is decoded and written again has the same bytes, and all others are zero.
/// * A record that is accepted has the magic, names and checksum it needs, sizes that exist, and host ids inside its area.
pub fn records(data: &[u8]) {
    let mut data = Data::new(data);
    let (choice, len) = (data.byte(), if data.one_in(2) { 4096 } else { 512 });
    let sealed = data.one_in(2);
    let mut sector = data.bytes(len).to_vec();
    if choice & 1 != 0 {
        sector.resize(len, 0);
    }
    let mut leader = RawLeader::from_sector(&sector);
    if sealed {
        // Few mutations find a checksum.
        leader.seal();
        if sector.len() >= LEADER {
            leader.overlay(&mut sector);
        }
    }
    check_leader(&leader, &sector, choice);
    check_block(&sector);
    check_small(&sector);
}

fn check_leader(leader: &RawLeader, sector: &[u8], choice: u8) {
    let bitmap = Bitmap::from_sector(sector);
    let mut out = vec![0xa5; 4096];
    leader.encode(Some(&bitmap), &mut out);
    assert_eq!(RawLeader::from_sector(&out), *leader);
    if sector.len() >= 512 {
        assert_eq!((&out[..LEADER], &out[256..512]), (&sector[..LEADER], &sector[256..512]));
    }
    assert!(out[512..].iter().chain(&out[LEADER..256]).all(|byte| *byte == 0));
    let _shown = format!("{leader:?} {bitmap:?}");
    for host in bitmap.hosts() {
        assert!(bitmap.contains(host));
    }
    let summed = sanlock_lease::checksum::checksum(&out[..SUMMED]);
    assert_eq!(leader.computed_checksum(), summed);

    let purpose = if choice & 2 != 0 { Purpose::Read } else { Purpose::Use };
    let lockspace = (choice & 4 != 0).then(|| sanlock_lease::name::Name::from_field(&leader.space_name));
    let resource = (choice & 8 != 0).then(|| sanlock_lease::name::Name::from_field(&leader.resource_name));
    match verify::delta(leader, lockspace.as_ref(), purpose) {
        Ok(()) => assert!(leader.magic.get() == DELTA_MAGIC && leader.checksum.get() == summed),
        Err(error) => drop(error.to_string()),
    }
    let host_id = HostId::new(u64::from(choice >> 4) * 150);
    match verify::paxos(leader, &Expect { lockspace, resource, host_id }, purpose) {
        Ok(geometry) => {
            assert!(leader.magic.get() == PAXOS_MAGIC && leader.checksum.get() == summed);
            assert_eq!(geometry.sector().bytes(), leader.sector_size.get());
            let max = u64::from(geometry.max_hosts());
            assert!(max <= u64::from(HOSTS_MAX) && leader.num_hosts.get() <= max);
            assert!(leader.owner_id.get() <= max && host_id.map_or(0, HostId::get) <= max);
            // All sectors that a machine derives from it lie inside the area.
            assert!(2 + leader.num_hosts.get() <= geometry.sectors());
        }
        Err(error) => drop(error.to_string()),
    }
    let _sizes = verify::sizes(leader);
}

fn check_block(sector: &[u8]) {
    let block = HostBlock::from_sector(sector);
    let mut out = vec![0xa5; 512];
    block.encode(&mut out);
    let again = HostBlock::from_sector(&out);
    assert_eq!((again.dblock, again.mode.flags, again.mode.generation), {
        (block.dblock, block.mode.flags, block.mode.generation)
    });
    let Some(host) = HostId::new(7) else { return };
    match verify::dblock(&block.dblock, host) {
        Ok(()) => assert!(
            block.dblock.is_unused() || block.dblock.checksum.get() == block.dblock.computed_checksum()
        ),
        Err(error) => drop(error.to_string()),
    }
}

fn check_small(sector: &[u8]) {
    let mut out = vec![0xa5; 512];
    let request = RequestRecord::from_sector(sector);
    request.encode(&mut out);
    let again = RequestRecord::from_sector(&out);
    assert_eq!(
        (again.magic, again.lver, again.force_mode),
        (request.magic, request.lver, request.force_mode)
    );
    let header = RindexHeader::from_sector(sector);
    header.encode(&mut out);
    assert_eq!(RindexHeader::from_sector(&out), header);
    for piece in sector.chunks(RindexEntry::BYTES) {
        let entry = RindexEntry::from_bytes(piece);
        assert_eq!(&entry.to_bytes()[..piece.len()], piece);
        let _free = entry.is_free();
    }
}
