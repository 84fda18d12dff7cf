use super::*;
use crate::text::{LockspaceSpec, library};
use proptest::prelude::*;

const MIB: u64 = 1 << 20;

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

fn ls(lockspace: &str, host_id: u64, path: &str, offset: u64) -> LockspaceSpec {
    LockspaceSpec { name: name(lockspace), host_id, path: path.as_bytes().to_vec(), offset }
}

#[test]
fn lockspace_table() {
    for (text, expected) in [
        ("LS", ls("LS", 0, "", 0)),
        ("LS:1", ls("LS", 1, "", 0)),
        ("LS:1:/a", ls("LS", 1, "/a", 0)),
        ("LS:1:/a:0", ls("LS", 1, "/a", 0)),
        ("LS:1:/a:1M", ls("LS", 1, "/a", MIB)),
        ("LS:1:/a:16M", ls("LS", 1, "/a", 16 * MIB)),
        (r"LS:1:/a\:b:1M", ls("LS", 1, "/a:b", MIB)),
        (r"LS:1:/a\:b:4096", ls("LS", 1, "/a:b", 4096)),
        (r"LS:1:/a\\b:0", ls("LS", 1, "/ab", 0)),
        ("LS:1:/a b:0", ls("LS", 1, "/a b", 0)),
        (r"L\:S:1:/a:0", ls(r"L\:S", 1, "/a", 0)),
        ("::/a:0", ls("", 0, "/a", 0)),
        (":0:/a:0", ls("", 0, "/a", 0)),
        // What is empty is 0, and what follows the offset means nothing.
        ("LS:::", ls("LS", 0, "", 0)),
        ("LS:1:/a:", ls("LS", 1, "/a", 0)),
        ("LS:1:/a::", ls("LS", 1, "/a", 0)),
        ("LS:1:/a::7", ls("LS", 1, "/a", 0)),
        ("LS:1:/a:512:x:y", ls("LS", 1, "/a", 512)),
        ("LS:1:/a:3M:", ls("LS", 1, "/a", 3 * MIB)),
    ] {
        assert_eq!(LockspaceSpec::from(lockspace(text.as_bytes()).unwrap()), expected, "{text:?}");
    }
}

#[test]
fn lockspace_slips_are_errors() {
    for text in [
        "LS:1:/a:0x100000",
        "LS:1:/a:abc",
        "LS:1:/a:M",
        "LS:1:/a:-1",
        "LS:1:/a:5x",
        "LS:1:/a:3Mxyz",
        "LS:1:/a:5x:5",
        "LS:1:/a:512:1M",
        "LS:1:/a:18446744073709551616",
        "LS:1:/a:99999999999999M",
        "LS:x:/a:0",
        "LS:-1:/a:0",
        "LS:0x10:/a:0",
    ] {
        let error = lockspace(text.as_bytes()).unwrap_err();
        assert!(matches!(error, TextError::Number { .. } | TextError::Range { .. }), "{text:?}: {error}");
    }
    let long = format!("{}:1:/a:0", "x".repeat(49));
    assert!(matches!(lockspace(long.as_bytes()), Err(TextError::Name { .. })));
    let deep = format!("LS:1:{}:0", "p".repeat(1024));
    assert_eq!(lockspace(deep.as_bytes()), Err(TextError::Length { field: "path", found: 1024 }));
}

#[test]
fn a_later_lockspace_string_overwrites_only_what_it_gives() {
    let first = || LockspaceSpec::from(lockspace(b"LS:1:/a:5").unwrap());
    for (text, expected) in [
        ("LT", ls("LT", 1, "/a", 5)),
        (":2", ls("", 2, "/a", 5)),
        ("LT::/b", ls("LT", 0, "/b", 5)),
        ("LT:3::7", ls("LT", 3, "", 7)),
    ] {
        let mut spec = first();
        spec.merge(lockspace(text.as_bytes()).unwrap());
        assert_eq!(spec, expected, "{text:?}");
    }
}

#[test]
fn a_part_that_is_there_and_empty() {
    for (text, at, expected) in [
        ("LS:1:/a:", 3, true),
        ("LS:1:/a::7", 3, true),
        ("LS:1:/a", 3, false),
        ("LS:1:/a:0", 3, false),
        ("LS:1:/a:0:", 3, false),
        (r"LS:1:/a\::0", 3, false),
        (r"LS:1:/a\::", 3, true),
        ("LS:/x:", 2, true),
        ("LS:/x", 2, false),
        ("LS::5", 1, true),
    ] {
        assert_eq!(is_left_empty(text.as_bytes(), at), expected, "{text:?} {at}");
    }
}

#[test]
fn resource_table() {
    let disk = |path: &str, offset| DiskSpec { path: path.as_bytes().to_vec(), offset };
    let res = |disks: Vec<DiskSpec>, lver, shared| ResourceSpec {
        lockspace: name("LS"),
        name: name("R"),
        disks,
        lver,
        shared,
    };
    for (text, expected) in [
        ("LS:R:/a:0", res(vec![disk("/a", 0)], None, false)),
        ("LS:R", res(vec![], None, false)),
        ("LS:R:/a:1M:SH", res(vec![disk("/a", MIB)], None, true)),
        ("LS:R:/a:1M:SHARED", res(vec![disk("/a", MIB)], None, true)),
        ("LS:R:/a:0:7", res(vec![disk("/a", 0)], Some(7), false)),
        ("LS:R:/a:0:0x10", res(vec![disk("/a", 0)], Some(16), false)),
        ("LS:R:/a:0:/b:4096", res(vec![disk("/a", 0), disk("/b", 4096)], None, false)),
        ("LS:R:/a:1M:/b:2M", res(vec![disk("/a", MIB), disk("/b", 2 * MIB)], None, false)),
        ("LS:R:/a:10M:/b:20M:3", res(vec![disk("/a", 10 * MIB), disk("/b", 20 * MIB)], Some(3), false)),
        (
            "LS:R:/a:0:/b:0:/c:0:/d:0:9",
            res(vec![disk("/a", 0), disk("/b", 0), disk("/c", 0), disk("/d", 0)], Some(9), false),
        ),
        (r"LS:R:/a\:b:0", res(vec![disk("/a:b", 0)], None, false)),
        (r"LS:R:/a\:b:1M", res(vec![disk("/a:b", MIB)], None, false)),
        (r"LS:R\:X:/a:0", ResourceSpec { name: name("R:X"), ..res(vec![disk("/a", 0)], None, false) }),
        (
            "::/a:0",
            ResourceSpec { lockspace: name(""), name: name(""), ..res(vec![disk("/a", 0)], None, false) },
        ),
    ] {
        assert_eq!(resource(text.as_bytes()), Ok(expected), "{text:?}");
    }
}

#[test]
fn resource_slips_are_errors_with_the_library_number() {
    for (text, code) in [
        ("LS:R:/a", -1),
        ("LS", -6),
        ("LSR", -1),
        (r"LS:R:/a:0\", -1),
        ("LS:R::0", -1),
        ("LS:R:/a:", -1),
        ("LS:R:/a:0:", -1),
        ("LS:R:/a:5x", -1),
        ("LS:R:/a:0x10", -1),
        ("LS:R:/a:-5", -1),
        ("LS:R:/a:0:/b:2m", -1),
        ("LS:R:/a:0:sh", -1),
        ("LS:R:/a:0:EX", -1),
        ("LS:R:/a:0:SHxyz", -1),
        ("l:r:/1:0:/2:0:/3:0:/4:0:/5:0", -2),
    ] {
        let error = resource(text.as_bytes()).unwrap_err();
        assert_eq!(error.code(), code, "{text:?}: {error}");
    }
    for (text, expected) in [
        ("LS:R:/a:", "offset is empty"),
        ("LS:R::0", "path is empty"),
        ("LS:R:/a:1M:", "the last field is empty"),
        ("LS:R:/a:0:/b:", "offset is empty"),
        ("LS:R:/a:-512", "offset \"-512\" is negative, expected decimal bytes, or decimal MiB followed by M"),
        ("LS:R:/a:-", "offset \"-\" is not a number, expected decimal bytes, or decimal MiB followed by M"),
    ] {
        assert_eq!(resource(text.as_bytes()).unwrap_err().to_string(), expected, "{text:?}");
    }
    let deep = format!("LS:R:{}:0", "p".repeat(1024));
    let error = resource(deep.as_bytes()).unwrap_err();
    assert_eq!(error.to_string(), "path has 1024 bytes, at most 1023 are allowed");
    let long = format!("{}:R:/a:0", "x".repeat(49));
    let error = resource(long.as_bytes()).unwrap_err();
    assert_eq!(error.to_string(), "lockspace name: name has 49 bytes, at most 48 are allowed");
}

#[test]
fn rindex_table() {
    let index = |lockspace: &str, path: &str, offset| RindexSpec {
        lockspace: name(lockspace),
        disk: DiskSpec { path: path.as_bytes().to_vec(), offset },
    };
    assert_eq!(rindex(b"LS").unwrap(), index("LS", "", 0));
    assert_eq!(rindex(b"LS:/rx").unwrap(), index("LS", "/rx", 0));
    assert_eq!(rindex(b"LS:/rx:").unwrap(), index("LS", "/rx", 0));
    assert_eq!(rindex(br"LS:/r\:x:2M").unwrap(), index("LS", "/r:x", 2 * MIB));
    assert!(rindex(b"LS:/rx:0x10").is_err());
    assert!(rindex(b"LS:/rx:0:1").is_err());
}

#[test]
fn rentry_table() {
    let entry = |text: &str, offset| RentrySpec { name: name(text), offset };
    assert_eq!(rentry(b"one").unwrap(), entry("one", 0));
    assert_eq!(rentry(b"one:").unwrap(), entry("one", 0));
    assert_eq!(rentry(b":").unwrap(), entry("", 0));
    assert_eq!(rentry(b"one:2M").unwrap(), entry("one", 2 * MIB));
    assert_eq!(rentry(b":3145728").unwrap(), entry("", 3 * MIB));
    assert_eq!(rentry(br"a\:5").unwrap(), entry(r"a\", 5));
    assert!(rentry(b"one:x").is_err());
    assert!(rentry(&[b'x'; 49]).is_err());
}

#[test]
fn dump_and_next_free_arguments() {
    let disk = |path: &str, offset| DiskSpec { path: path.as_bytes().to_vec(), offset };
    let range = |path: &str, offset, size| DumpRange { disk: disk(path, offset), size };
    assert_eq!(dump_range(b"/p").unwrap(), range("/p", 0, None));
    assert_eq!(dump_range(b"/p:1M").unwrap(), range("/p", MIB, None));
    assert_eq!(dump_range(b"/p:1M:2M").unwrap(), range("/p", MIB, Some(2 * MIB)));
    assert_eq!(dump_range(b"/p:0:0").unwrap(), range("/p", 0, None));
    assert_eq!(dump_range(br"/p\:x:512").unwrap(), range("/p:x", 512, None));
    for (text, size) in [("/p:", None), ("/p::", None), ("/p:0:", None), ("/p::2M", Some(2 * MIB))] {
        assert_eq!(dump_range(text.as_bytes()).unwrap(), range("/p", 0, size), "{text:?}");
    }
    for bad in ["", ":0", "/p:x", "/p:M", "/p:0:x", "/p:0:1:2", "/p:0x10"] {
        assert!(dump_range(bad.as_bytes()).is_err(), "{bad:?}");
    }
    assert_eq!(next_free_start(b"/p").unwrap(), disk("/p", 0));
    assert_eq!(next_free_start(b"/p:").unwrap(), disk("/p", 0));
    assert_eq!(next_free_start(b"/p:4096").unwrap(), disk("/p", 4096));
    assert_eq!(next_free_start(b"/p:4M").unwrap(), disk("/p", 4 * MIB));
    assert_eq!(next_free_start(br"/p\:5").unwrap(), disk(r"/p\", 5));
    assert!(next_free_start(b"/p:1:2").is_err());
    assert!(next_free_start(b"").is_err());
    let longest = "p".repeat(PATH_LEN_MAX);
    assert_eq!(next_free_start(longest.as_bytes()).unwrap(), disk(&longest, 0));
    for found in [PATH_LEN_MAX + 1, PATH_LEN_MAX + 2] {
        let error = next_free_start("p".repeat(found).as_bytes());
        assert_eq!(error, Err(TextError::Length { field: "path", found }));
    }
}

proptest! {
    #[test]
    fn what_strict_accepts_without_m_the_library_reads_alike(text in r"[ab/:\\0-9SHM]{0,40}") {
        if text.contains('M') || text.contains("SHARED") {
            return Ok(());
        }
        if let Ok(spec) = resource(text.as_bytes()) {
            prop_assert_eq!(library::resource(text.as_bytes()), Ok(spec));
        }
        if let Ok(fields) = lockspace(text.as_bytes()) {
            let lenient = library::lockspace(text.as_bytes());
            // Only offsets and ids above the signed range differ: there the library saturates.
            if fields.host_id.is_none_or(|id| i64::try_from(id).is_ok())
                && fields.offset.is_none_or(|offset| i64::try_from(offset).is_ok())
            {
                prop_assert_eq!(lenient, fields);
            }
        }
    }

    #[test]
    fn nothing_panics(text: Vec<u8>) {
        let _ = lockspace(&text);
        let _ = resource(&text);
        let _ = rindex(&text);
        let _ = rentry(&text);
        let _ = dump_range(&text);
        let _ = next_free_start(&text);
    }
}
