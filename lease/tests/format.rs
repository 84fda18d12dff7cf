//! Formatted areas against those that sanlock 3.8.5 wrote.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use sanlock_lease::format::{Lockspace, Resource, num_hosts};
use sanlock_lease::geometry::{AlignSize, Geometry, SectorSize};
use sanlock_lease::name::Name;
use sanlock_lease::record::RawLeader;
use sanlock_lease::timing::IoTimeout;
use std::io::Read;
use std::path::Path;

/// Bytes 20 to 23 of the request record: the original leaves memory contents there (disk-format.md 3, rule 6).
const REQUEST_PADDING: std::ops::Range<usize> = 20..24;

fn recorded(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/disk").join(format!("{name}.img.gz"));
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_end(&mut bytes).unwrap();
    bytes
}

fn geometries() -> [(&'static str, Geometry); 5] {
    let pair = |sector, align| Geometry::new(sector, align).unwrap();
    [
        ("512-1m", pair(SectorSize::B512, AlignSize::M1)),
        ("4k-1m", pair(SectorSize::B4096, AlignSize::M1)),
        ("4k-2m", pair(SectorSize::B4096, AlignSize::M2)),
        ("4k-4m", pair(SectorSize::B4096, AlignSize::M4)),
        ("4k-8m", pair(SectorSize::B4096, AlignSize::M8)),
    ]
}

fn io_timeout(image: &[u8]) -> IoTimeout {
    IoTimeout::new(u32::from(RawLeader::from_sector(image).io_timeout.get())).unwrap()
}

fn field(image: &[u8], of: impl Fn(&RawLeader) -> [u8; 48]) -> Name {
    Name::from_field(&of(&RawLeader::from_sector(image)))
}

#[test]
fn lockspaces_as_recorded() {
    for (sizes, geometry) in geometries() {
        let image = recorded(&format!("v38-ls-{sizes}-init"));
        let format =
            Lockspace { name: Name::new(b"golden-ls").unwrap(), geometry, io_timeout: io_timeout(&image) };
        let mut ours = format.area();
        assert_eq!(ours[..4], [0; 4], "{sizes}: nobody accepts the first record before the second write");
        let first = RawLeader::from_sector(&ours);
        assert_eq!(first.checksum.get(), first.computed_checksum(), "{sizes}");
        let sector = format.first_sector();
        assert_eq!(sector.len(), geometry.sector().slice_len(), "{sizes}");
        ours[..sector.len()].copy_from_slice(&sector);
        assert!(ours == image, "{sizes}");
    }
}

#[test]
fn resources_as_recorded() {
    for (sizes, geometry) in geometries() {
        let mut image = recorded(&format!("v38-res-{sizes}-init"));
        let format = Resource {
            lockspace: field(&image, |leader| leader.space_name),
            name: field(&image, |leader| leader.resource_name),
            geometry,
            num_hosts: num_hosts(0, geometry),
            cleared_at: None,
        };
        forget_padding(&mut image, geometry);
        assert!(format.area() == image, "{sizes}");
    }
}

#[test]
fn a_cleared_resource_as_recorded() {
    let mut image = recorded("v38-res-512-1m-cleared");
    let format = Resource {
        lockspace: Name::new(b"golden-ls").unwrap(),
        name: Name::new(b"res-clear").unwrap(),
        geometry: Geometry::B512_M1,
        num_hosts: 2000,
        cleared_at: Some(RawLeader::from_sector(&image).write_timestamp.get()),
    };
    forget_padding(&mut image, Geometry::B512_M1);
    assert!(format.area() == image);
}

fn forget_padding(image: &mut [u8], geometry: Geometry) {
    let request = geometry.sector().slice_len();
    image[request + REQUEST_PADDING.start..request + REQUEST_PADDING.end].fill(0);
}
