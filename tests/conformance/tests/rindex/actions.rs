//! The actions of the command line.

use super::*;
use std::collections::BTreeMap;

/// One life of an index. After each line the index area and the areas of the first four entries are compared as well.
const LIFE: &[&str] = &[
    "client format -x INDEX",
    "client lookup -x INDEX",
    "client lookup -x INDEX -e a",
    "client create -x INDEX -e a",
    "client create -x INDEX -e b",
    "client create -x INDEX -e c:50M",
    "client lookup -x INDEX -e b",
    "client lookup -x INDEX -e :AREA1",
    "client lookup -x INDEX -e b:AREA1",
    "client lookup -x INDEX -e a:AREA1",
    "client lookup -x INDEX -e none:AREA3",
    "client lookup -x INDEX -e :AREA3",
    "client lookup -x INDEX",
    "client delete -x INDEX -e b",
    "client delete -x INDEX -e b",
    "client delete -x INDEX",
    "client delete -x INDEX -e :AREA0",
    "client lookup -x INDEX -e b",
    "client lookup -x INDEX",
    "client lookup -x INDEX -e :AREA1",
    "client lookup -x INDEX",
    "client update -x INDEX -e x:AREA5",
    "client lookup -x INDEX -e x",
    "client update -x INDEX -e y:AREA5 -z 0",
    "client lookup -x INDEX -e :AREA5",
    "client update -x INDEX -e :AREA5 -z 1",
    "client update -x INDEX -e x",
    "client update -x INDEX -e :AREA5",
    "client update -x INDEX",
    "client update -x INDEX -z 1",
    "client update -x INDEX -e x:1048577",
    "client update -x INDEX -e x:AREA0 -z 1",
    "client lookup -x INDEX -e x",
    "client rebuild -x INDEX",
    "client lookup -x INDEX -e a",
    "direct lookup -x INDEX -e c",
    "direct lookup -x INDEX -e none",
    "direct lookup -x INDEX -e none:AREA0",
    "direct lookup -x INDEX",
    "direct lookup -x OTHER:PATH:0",
    "direct update -x INDEX -e z:AREA6",
    "direct lookup -x INDEX -e z",
    "direct update -x INDEX -e z",
    "direct dump PATH -f 1",
    "direct rebuild -x INDEX",
    "direct lookup -x INDEX -e z",
    "client delete -x INDEX -e a:AREA4",
    "client format -x INDEX -Z 4096",
    "direct format -x INDEX -Z 4096",
    "direct format -x INDEX",
    "client lookup -x INDEX -e a",
    "client rebuild -x INDEX",
    "client lookup -x INDEX -e c",
];

#[test]
fn one_life_of_an_index_is_the_same_in_text_and_bytes() {
    for kind in StorageKind::ALL {
        let Some(sides) = Side::both(kind) else { continue };
        for (number, line) in LIFE.iter().enumerate() {
            let case = format!("{kind:?}, line {number}: {line}");
            // The version of the index's lease shows in a dump, and an update takes the lease here.
            let seen = |side: &Side| {
                let (text, code) = side.seen(line);
                let lines: Vec<String> = text
                    .lines()
                    .filter(|line| !line.contains("rindex_lease") && !line.contains("host1"))
                    .map(str::to_owned)
                    .collect();
                (lines, code)
            };
            same(&case, &sides, seen);
            same_bytes(&format!("{case}, the index"), &sides, Side::index_area);
            for slot in 0..4 {
                same_bytes(&format!("{case}, area {slot}"), &sides, |side| side.masked(side.area(slot)));
            }
            assert!(same(&case, &sides, |side| side.lease().1), "{case}: the lease is given back");
            if *line == "client create -x INDEX -e c:50M" {
                // Until the first update the lease has had the same owners, too.
                same(&case, &sides, Side::lease);
            }
        }
    }
}

/// Sizes given, other than those of the storage and the lockspace.
#[test]
fn sizes_as_asked_for() {
    for kind in [StorageKind::File, StorageKind::Loop4096] {
        let Some(sides) = Side::both(kind) else { continue };
        for sizes in ["-Z 4096 -A 1M", "-Z 4096 -A 2M", "-Z 4096 -A 8M"] {
            let what = format!("{kind:?}, {sizes}");
            for line in [
                format!("client format -x INDEX {sizes}"),
                "client lookup -x INDEX".to_owned(),
                "client create -x INDEX -e sized".to_owned(),
                "client lookup -x INDEX -e sized".to_owned(),
                "client rebuild -x INDEX".to_owned(),
                "client lookup -x INDEX -e sized".to_owned(),
                "direct lookup -x INDEX -e sized".to_owned(),
                "client delete -x INDEX -e sized".to_owned(),
            ] {
                same(&format!("{what}: {line}"), &sides, |side| side.seen(&line));
                same_bytes(&format!("{what}: {line}"), &sides, |side| side.bytes(side.base(), 1 << 20));
            }
        }
    }
}

/// At an offset that is no multiple of the align size.
#[test]
fn an_index_between_the_areas() {
    let Some(sides) = Side::both(StorageKind::File) else { return };
    for line in [
        "client format -x LS:PATH:1049088",
        "client lookup -x LS:PATH:1049088",
        "client create -x LS:PATH:1049088 -e a",
        "client lookup -x LS:PATH:1049088 -e a",
        "client lookup -x LS:PATH:1049088 -e :3146240",
        "client rebuild -x LS:PATH:1049088",
        "client lookup -x LS:PATH:1049088 -e a",
        "client delete -x LS:PATH:1049088 -e a",
        "client lookup -x LS:PATH:1049088 -e a",
    ] {
        same(line, &sides, |side| side.seen(line));
        same_bytes(line, &sides, |side| side.bytes(1_049_088, 1 << 20));
    }
}

/// What is refused before an index is looked at, or because there is none.
#[test]
fn refusals_are_the_same() {
    let Some(sides) = Side::both(StorageKind::File) else { return };
    for line in [
        "client format",
        "client format -x LS",
        "client create",
        "client create -x INDEX -e a",
        "client delete",
        "client delete -x INDEX -e a",
        "client lookup",
        "client lookup -x INDEX",
        "client update",
        "client update -x INDEX -e a:AREA0",
        "client rebuild",
        "client rebuild -x INDEX",
        "client lookup -x LS:PATH:0",
        "client lookup -x INDEX -e",
        "client lookup -x OTHER:PATH:0",
        "client create -x OTHER:PATH:0 -e a",
        "client format -x LS:PATH-none:0",
        "client lookup -x LS:PATH-none:0",
        "client create -x LS:PATH-none:0 -e a",
        "client rebuild -x LS:PATH-none:0",
        "client format -x LS:PATH:100",
        "client lookup -x LS:PATH:100",
        "direct format",
        "direct format -x LS",
        "direct format -x LS:PATH-none:0",
        "direct format -x INDEX -Z 512",
        "direct lookup",
        "direct lookup -x LS",
        "direct lookup -x INDEX",
        "direct lookup -x LS:PATH-none:0",
        "direct update",
        "direct update -x INDEX -e a",
        "direct update -x INDEX -e a:AREA0",
        "direct rebuild",
        "direct rebuild -x INDEX",
        "direct create -x INDEX -e a",
        "direct delete -x INDEX -e a",
    ] {
        same(line, &sides, |side| side.seen(line));
    }
}

/// Where we differ on purpose: the original's and our result (docs/differences.md).
#[test]
fn deliberate_differences() {
    let Some(sides) = Side::both(StorageKind::File) else { return };
    for side in &sides {
        assert_eq!(side.seen("client format -x INDEX").1, 0);
        assert_eq!(side.seen("client create -x INDEX -e a").1, 0);
    }
    let beyond = |side: &Side| side.area(4096).to_string();
    for (line, reference, ours) in [
        ("client create -x INDEX -e a", 0, -17),
        ("client lookup -x INDEX -e :0M", 0, 0),
        ("client lookup -x INDEX -e :1M", 0, -277),
        ("client lookup -x INDEX -e :2M", 0, -277),
        ("client lookup -x INDEX -e :BEYOND", 0, -277),
        ("direct lookup -x INDEX -e :BEYOND", 0, -277),
    ] {
        for (side, expected) in sides.iter().zip([reference, ours]) {
            let (text, _) = side.seen(&line.replace("BEYOND", &beyond(side)));
            let result = text.lines().next().and_then(|line| line.rsplit(' ').next()).map(str::parse);
            assert_eq!(result, Some(Ok(expected)), "{:?}: {line}: {text}", side.host.program());
        }
    }
}

/// `-n` of `create` is ignored by the original's command line, which asks for as many hosts as fit.
#[test]
fn create_with_a_number_of_hosts() {
    let Some(sides) = Side::both(StorageKind::File) else { return };
    for (side, num_hosts) in sides.iter().zip([2000_u64, 8]) {
        assert_eq!(side.seen("client format -x INDEX").1, 0);
        assert_eq!(side.seen("client create -x INDEX -e a -n 8").1, 0);
        assert_eq!(side.bytes(side.area(0) + 16, 8), num_hosts.to_le_bytes());
    }
}

/// The whole table of entries as `direct dump` shows it.
pub(super) fn entries(side: &Side) -> BTreeMap<String, u64> {
    let (text, _) = side.seen("direct dump PATH -f 1");
    text.lines()
        .filter_map(|line| line.split_once(" rentry "))
        .filter_map(|(_, entry)| entry.split_once(' '))
        .map(|(name, offset)| {
            let offset = offset.trim().parse().unwrap_or_else(|error| panic!("{offset}: {error}"));
            (name.to_owned(), offset)
        })
        .collect()
}
