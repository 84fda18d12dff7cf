//! Every row was also given to the C library (3.8.5), which gave the same results.

use super::*;
use proptest::prelude::*;

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

/// A resource in `ls`, named `res`, on `/p` at `offset`.
fn res(offset: u64) -> ResourceSpec {
    ResourceSpec {
        lockspace: name("ls"),
        name: name("res"),
        disks: vec![DiskSpec { path: b"/p".to_vec(), offset }],
        ..ResourceSpec::default()
    }
}

#[test]
fn resource_table() {
    let shared = ResourceSpec { shared: true, ..res(0) };
    let on = |path: &str, offset| ResourceSpec {
        disks: vec![DiskSpec { path: path.as_bytes().to_vec(), offset }],
        ..res(0)
    };
    let version = |lver| ResourceSpec { lver: Some(lver), ..res(0) };
    for (text, expected) in [
        ("ls:res:/p:0", Ok(res(0))),
        ("ls:res:/p:0:5", Ok(version(5))),
        ("ls:res:/p:0:0x10", Ok(version(16))),
        ("ls:res:/p:0:010", Ok(version(8))),
        ("ls:res:/p:0:0xg", Ok(version(0))),
        ("ls:res:/p:0:sh", Ok(version(0))),
        ("ls:res:/p:0:EX", Ok(version(0))),
        ("ls:res:/p:0:S", Ok(version(0))),
        ("ls:res:/p:0:-1", Ok(version(u64::MAX))),
        ("ls:res:/p:0:SH", Ok(shared.clone())),
        ("ls:res:/p:0:SHxyz", Ok(shared.clone())),
        ("ls:res:/p:0:SHARED", Ok(shared)),
        ("ls:res", Ok(ResourceSpec { disks: vec![], ..res(0) })),
        ("ls:res:/p", Err(-1)),
        ("ls::/p", Err(-1)),
        ("ls", Err(-6)),
        ("", Err(-6)),
        (":r", Err(-6)),
        ("::", Err(-6)),
        (r"\", Err(-6)),
        ("abc", Err(-1)),
        (r"ab\", Err(-1)),
        (r"ls:res:/p:0\", Err(-1)),
        (":::", Err(-1)),
        ("::::", Err(-1)),
        ("::/p:0", Ok(ResourceSpec { lockspace: name(""), name: name(""), ..res(0) })),
        (
            "ls:res:/p:0:/q:8:3",
            Ok(ResourceSpec {
                disks: vec![
                    DiskSpec { path: b"/p".to_vec(), offset: 0 },
                    DiskSpec { path: b"/q".to_vec(), offset: 8 },
                ],
                ..version(3)
            }),
        ),
        ("ls:res:/p:12abc", Ok(res(12))),
        ("ls:res:/p:0x10", Ok(res(0))),
        ("ls:res:/p: 12", Ok(res(12))),
        ("ls:res:/p:\t-5", Ok(res(5u64.wrapping_neg()))),
        ("ls:res:/p:- 5", Err(-1)),
        ("ls:res:/p:-1", Ok(res(u64::MAX))),
        ("ls:res:/p:99999999999999999999", Ok(res(u64::MAX))),
        (r"ls:res:/p:\1", Ok(res(1))),
        (r"ls:res:/p:0\:1", Ok(res(0))),
        ("ls:res:/q:1M", Ok(on("/q", 1))),
        ("ls:res:/p:abc", Err(-1)),
        ("ls:res:/p:", Err(-1)),
        ("ls:res::0", Err(-1)),
        ("ls:res:/p:0:", Err(-1)),
        ("ls:res:/p:0::0", Err(-1)),
        (r"ls:res:/p\:x:0", Ok(on("/p:x", 0))),
        (r"ls:res:/p\\x:0", Ok(on(r"/p\x", 0))),
        (r"ls:res:/p\\:0", Ok(on(r"/p\", 0))),
        (r"ls:res:/p\ x:0", Ok(on("/p x", 0))),
        (r"l\:s:r\:s:/p:0", Ok(ResourceSpec { lockspace: name("l:s"), name: name("r:s"), ..res(0) })),
        ("l:r:/1:0:/2:0:/3:0:/4:0:/5:0", Err(-2)),
        ("l:r:/1:0:/2:0:/3:0:/4:0:/5:0:1", Err(-2)),
    ] {
        let result = resource(text.as_bytes()).map_err(|e| e.code());
        assert_eq!(result, expected, "{text:?}");
    }
}

#[test]
fn a_fifth_path_without_offset_is_a_version() {
    let spec = resource(b"l:r:/1:0:/2:0:/3:0:/4:0:/5").unwrap();
    assert_eq!((spec.disks.len(), spec.lver), (4, Some(0)));
}

#[test]
fn resource_field_limits() {
    for (lockspace, resource_len, path, offset, version, ok) in [
        (48, 48, 1023, 1, 1, true),
        (49, 1, 1, 1, 1, false),
        (1, 49, 1, 1, 1, false),
        (1, 1, 1024, 1, 1, false),
        (1, 1, 1, 1023, 1023, true),
        (1, 1, 1, 1024, 1, false),
        (1, 1, 1, 1, 1024, false),
    ] {
        let text = format!(
            "{}:{}:{}:{}:{}",
            "l".repeat(lockspace),
            "r".repeat(resource_len),
            "p".repeat(path),
            "0".repeat(offset),
            "1".repeat(version)
        );
        let code = resource(text.as_bytes()).map(|_| ()).map_err(|e| e.code());
        assert_eq!(
            code,
            if ok { Ok(()) } else { Err(-1) },
            "{lockspace}/{resource_len}/{path}/{offset}/{version}"
        );
    }
}

#[test]
fn lockspace_table() {
    let fields = |lockspace: &str, host_id, path: Option<&str>, offset| LockspaceFields {
        name: name(lockspace),
        host_id,
        path: path.map(|p| p.as_bytes().to_vec()),
        offset,
    };
    for (text, expected) in [
        ("", fields("", None, None, None)),
        ("ls", fields("ls", None, None, None)),
        ("ls:3", fields("ls", Some(3), None, None)),
        ("ls:1:/p:5", fields("ls", Some(1), Some("/p"), Some(5))),
        (r"l\:s:1:/p:0", fields(r"l\:s", Some(1), Some("/p"), Some(0))),
        (r"l\\:1:/p:0", fields(r"l\\", Some(1), Some("/p"), Some(0))),
        (r"ls\:x", fields(r"ls\:x", None, None, None)),
        ("ls:1x:/p:5y", fields("ls", Some(1), Some("/p"), Some(5))),
        ("ls: 12:/p: 7", fields("ls", Some(12), Some("/p"), Some(7))),
        ("ls:x:/p:y", fields("ls", Some(0), Some("/p"), Some(0))),
        ("ls:0x10:/p:0x10", fields("ls", Some(0), Some("/p"), Some(0))),
        ("ls:-1:/p:-2", fields("ls", Some(u64::MAX), Some("/p"), Some(u64::MAX - 1))),
        ("ls:99999999999999999999", fields("ls", Some(i64::MAX.unsigned_abs()), None, None)),
        ("ls:1:/p:0:5", fields("ls", Some(1), Some("/p"), Some(0))),
        ("ls:1:/p:1M", fields("ls", Some(1), Some("/p"), Some(1))),
        (r"ls:1:/a\:b:0", fields("ls", Some(1), Some("/a:b"), Some(0))),
        (r"ls:1:/a\\b:0", fields("ls", Some(1), Some("/ab"), Some(0))),
        (r"ls:1:/a\\:b:0", fields("ls", Some(1), Some("/a"), Some(0))),
        ("::/p:0", fields("", Some(0), Some("/p"), Some(0))),
    ] {
        assert_eq!(lockspace(text.as_bytes()), expected, "{text:?}");
    }
}

#[test]
fn long_lockspace_names_are_cut_and_long_paths_lose_their_nul() {
    let spec = lockspace("x".repeat(60).as_bytes());
    assert_eq!(spec.name.as_bytes(), [b'x'; 48]);
    for (given, kept) in [(1023, 1023), (1024, 1024), (2000, 1024)] {
        let spec = lockspace(format!("ls:1:{}:7", "p".repeat(given)).as_bytes());
        assert_eq!((spec.path.unwrap().len(), spec.offset), (kept, Some(7)));
    }
}

#[test]
fn state_table() {
    for (text, expected) in [
        ("", Err(-6)),
        ("ls:r1:/p:0:1 ", Err(-6)),
        ("ls:r1:/p:0:1", Ok(vec!["ls:r1:/p:0:1"])),
        ("ls:r1:/p:0:1 ls:r2:/p:8:SH", Ok(vec!["ls:r1:/p:0:1", "ls:r2:/p:8:SH"])),
        ("ls:r1:/p:0 ls:r2:/p:0", Ok(vec!["ls:r1:/p:0:0", "ls:r2:/p:0:0"])),
        ("ls:r1:/p x:0:1", Ok(vec![r"ls:r1:/p\ x:0:1"])),
        ("ls:r1:/p x:0:1 ls:r2:/q y:0:1", Ok(vec![r"ls:r1:/p\ x:0:1", r"ls:r2:/q\ y:0:1"])),
        (r"ls:r1:/p\ x:0:1", Ok(vec![r"ls:r1:/p\ x:0:1"])),
        (r"ls:r1:/p\:x y:0:1 ls:r2:/p:0:1", Ok(vec![r"ls:r1:/p\:x\ y:0:1", "ls:r2:/p:0:1"])),
        (r"ls:r1:/p:0:/q\ x:0:1", Ok(vec![r"ls:r1:/p:0:/q\ x:0:1"])),
        ("ls:r1:/p:0:/q x:0:1", Err(-1)),
        (" ls:r1:/p:0:1", Ok(vec![" ls:r1:/p:0:1"])),
        ("ls:r1:/p:0:1  ls:r2:/p:0:1", Ok(vec!["ls:r1:/p:0:1", " ls:r2:/p:0:1"])),
        ("ls:r1", Ok(vec!["ls:r1:0"])),
        ("ls:r1 ls:r2:/p:0:1", Err(-1)),
        (r"ls:r1:/p:0\ ls:r2:/p:0", Err(-1)),
        (r"ls\\:r1:/p: 5", Ok(vec![r"ls\:r1:/p:5:0"])),
    ] {
        let texts = state(text.as_bytes()).map_err(|e| e.code()).map(|list| {
            list.iter().map(|r| String::from_utf8(r.to_text().unwrap()).unwrap()).collect::<Vec<_>>()
        });
        assert_eq!(texts, expected.map(|list| list.into_iter().map(str::to_owned).collect()), "{text:?}");
    }
}

prop_compose! {
    fn any_resource()(
        lockspace in "[a-zA-Z0-9_.-]{0,48}",
        name in "[a-zA-Z0-9_.-]{0,48}",
        disks in prop::collection::vec(("/[a-z:. ]{0,80}", any::<u64>()), 1..=4),
        lver: u64,
        shared: bool,
    ) -> ResourceSpec {
        ResourceSpec {
            lockspace: Name::new(lockspace.as_bytes()).unwrap(),
            name: Name::new(name.as_bytes()).unwrap(),
            disks: disks.into_iter().map(|(p, offset)| DiskSpec { path: p.into_bytes(), offset }).collect(),
            lver: (!shared).then_some(lver),
            shared,
        }
    }
}

proptest! {
    #[test]
    fn text_and_back(spec in any_resource()) {
        prop_assert_eq!(resource(&spec.to_text().unwrap()).unwrap(), spec);
    }

    #[test]
    fn state_and_back(specs in prop::collection::vec(any_resource(), 1..=8)) {
        prop_assert_eq!(state(&join_state(&specs).unwrap()).unwrap(), specs);
    }

    #[test]
    fn nothing_panics(text: Vec<u8>) {
        let _ = resource(&text);
        let _ = lockspace(&text);
        let _ = state(&text);
    }

    #[test]
    fn nothing_panics_on_separators(text in r"[ab0-9:\\ M\x00SH-]{0,60}") {
        let _ = resource(text.as_bytes());
        let _ = lockspace(text.as_bytes());
        let _ = state(text.as_bytes());
    }
}
