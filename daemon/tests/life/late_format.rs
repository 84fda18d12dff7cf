//! A format that timed out is not over: its write lands when the storage comes back.

use crate::support::{Daemon, Place, within};
use sanlock_conformance::frozen::FreezableDir;
use sanlock_wire::types::{Disk, Lockspace};
use sanlock_wire::{Name, code};
use std::fs::File;
use std::time::Duration;

#[test]
fn nothing_is_formatted_over_a_write_that_may_still_land() {
    let Some(mut storage) = FreezableDir::new() else { return };
    let place = Place::new();
    let daemon = Daemon::start(&place.run_dir("a"), "host1");
    let path = storage.path().join("leases");
    File::create(&path).unwrap().set_len(4 << 20).unwrap();
    let lockspace =
        |path: &[u8], offset| Lockspace::new(Name::truncated("LS"), 0, Disk::new(path, offset).unwrap());
    let frozen = path.as_os_str().as_encoded_bytes();
    let format = |offset| {
        let result = daemon.client().write_lockspace(&lockspace(frozen, offset), 0, 1);
        result.map_or_else(|error| error.result_code(), |()| 0)
    };
    assert_eq!(format(0), 0);
    storage.freeze();
    assert_eq!(format(0), code::SANLK_AIO_TIMEOUT);
    storage.thaw();
    // From now on it lands, soon. Until it has, the disk is not formatted.
    assert!(within(Duration::from_secs(60), || match format(1 << 20) {
        0 => true,
        refused => {
            assert_eq!(refused, code::EAGAIN);
            false
        }
    }));
    storage.freeze();
    assert_eq!(format(0), code::SANLK_AIO_TIMEOUT);
    assert_eq!(format(1 << 20), code::EAGAIN, "at once, although nothing else is the matter");
    // Another disk has nothing to do with it.
    place.format(&daemon);
    storage.thaw();
}
