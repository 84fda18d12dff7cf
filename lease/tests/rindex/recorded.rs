//! Against the indexes that sanlock 3.8.5 wrote.

use super::*;
use crate::images::load;

/// What the original leaves of its memory in the request record (disk-format.md 3, rule 6).
const REQUEST_PADDING: std::ops::Range<usize> = 20..24;
const MIB: usize = 1 << 20;

struct Recorded(Rig);

impl Recorded {
    fn run(&mut self, command: RindexCommand) -> Result<Entry, RindexError> {
        let rig = &mut self.0;
        let member = rig.member(1, 1);
        let lease = !matches!(command, RindexCommand::Format { .. });
        let config = RindexConfig {
            lockspace: name("golden-rx"),
            offset: rig.base,
            member: lease.then_some(member),
            fire: WatchdogFire::DEFAULT,
        };
        rig.drive_with(config, command).unwrap()
    }

    /// With an image that begins with the index.
    fn of(geometry: Geometry, image: &[u8]) -> Self {
        let align = geometry.align().bytes();
        let mut rig = Rig::new(geometry, align);
        for (area, bytes) in image.chunks_exact(usize::try_from(align).unwrap()).enumerate() {
            let (place, _) = rig.place(align * (1 + area as u64));
            rig.lab.disk.write(place, SectorSize::B512, 0, bytes);
        }
        Self(rig)
    }

    fn formatted(geometry: Geometry) -> Self {
        let mut recorded = Self(Rig::new(geometry, geometry.align().bytes()));
        recorded.run(RindexCommand::Format { geometry, max_resources: 0 }).unwrap();
        recorded
    }

    #[track_caller]
    fn assert_area(&self, area: usize, image: &[u8]) {
        let align = usize::try_from(self.0.geometry.align().bytes()).unwrap();
        let ours = self.0.bytes(self.0.base + (area * align) as u64, align);
        let mut theirs = image[area * align..(area + 1) * align].to_vec();
        let sector = self.0.geometry.sector().slice_len();
        if area > 0 {
            theirs[sector..][REQUEST_PADDING].fill(0);
            // A cleared lease says when; the checksum covers no such field.
            let (mut a, mut b) = (RawLeader::from_sector(&ours), RawLeader::from_sector(&theirs));
            a.write_timestamp = 0.into();
            b.write_timestamp = 0.into();
            assert_eq!(a, b, "leader of area {area}");
            assert!(ours[sector..] == theirs[sector..], "area {area} behind its leader");
        } else {
            assert!(ours == theirs, "the index");
        }
    }
}

#[test]
fn formatted_as_the_original_does() {
    let pairs = [
        (Geometry::B512_M1, "v38-rindex-512-1m-formatted"),
        (Geometry::B4096_M8, "v38-rindex-4k-8m-formatted"),
    ];
    for (geometry, file) in pairs {
        let image = load(file);
        let recorded = Recorded::formatted(geometry);
        recorded.assert_area(0, &image);
        recorded.assert_area(1, &image);
    }
}

#[test]
fn three_created_and_one_deleted_as_the_original_does() {
    let image = load("v38-rindex-512-1m-3created-1deleted");
    let mut recorded = Recorded::formatted(Geometry::B512_M1);
    for resource in ["resA", "resB", "resC"] {
        recorded.run(create(resource)).unwrap();
    }
    recorded.run(delete("resB")).unwrap();
    for area in [0, 2, 3, 4] {
        recorded.assert_area(area, &image);
    }
    let theirs = RawLeader::from_sector(&image[MIB..]);
    let ours = recorded.0.leader(2 * MIB as u64);
    assert_eq!((ours.lver, ours.owner_id, ours.timestamp), (theirs.lver, theirs.owner_id, theirs.timestamp));
}

#[test]
fn an_index_of_the_original_is_used_and_repaired() {
    let image = load("v38-rindex-512-1m-3created-1deleted");
    let mut recorded = Recorded::of(Geometry::B512_M1, &image);
    let at = |area: usize| (area * MIB) as u64;
    assert_eq!(recorded.run(lookup("resC", 0)), entry("resC", at(5)));
    assert_eq!(recorded.run(lookup("", 0)), entry("", at(4)));
    assert_eq!(recorded.run(create("resD")), entry("", at(4)));
    assert_eq!(recorded.run(RindexCommand::Remove { offset: at(3), seed: 0 }), entry("", 0));
    assert_eq!(
        recorded.run(lookup("resA", 0)).map_err(|e| e.to_string()),
        Err("the index has no resource resA".to_owned())
    );
    assert_eq!(recorded.run(RindexCommand::Rebuild { seed: 0 }), entry("", 0));
    assert_eq!(recorded.run(lookup("resA", 0)), entry("resA", at(3)));
}

#[test]
fn an_index_of_the_original_agrees_with_its_lease() {
    let pairs = [
        (Geometry::B512_M1, "v38-rindex-512-1m-formatted"),
        (Geometry::B4096_M8, "v38-rindex-4k-8m-formatted"),
    ];
    for (geometry, file) in pairs {
        let (Recorded(mut rig), align) = (Recorded::of(geometry, &load(file)), geometry.align().bytes());
        let config = RindexConfig { lockspace: name("golden-rx"), ..rig.config() };
        let result = rig.drive_with(config, RindexCommand::Rebuild { seed: 0 });
        assert_eq!(result, Some(entry("", 0)), "{file}");
        // Found at the first look, right behind the index.
        assert_eq!(
            rig.trace.get(1..3).unwrap(),
            [(2 * align, 4096), (align, i64::try_from(align).unwrap())],
            "{file}"
        );
    }
}
