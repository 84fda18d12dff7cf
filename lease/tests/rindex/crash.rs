//! A host that dies at any write leaves an index that points to initialised leases only, and that the next host can use.

use super::*;

/// Bytes of a torn write that still land.
const TEARS: [usize; 4] = [0, 512, 4096, 512 * 1024];

/// Cuts `command` off before its first write, before its second, and so on until it ends, after `prepare`.
fn cut_everywhere(geometry: Geometry, command: RindexCommand, prepare: impl Fn(&mut Rig), after: &[&str]) {
    let mut cuts = 0;
    // Areas of 8 MiB take long enough with one of them.
    let tears = if geometry == Geometry::B512_M1 { &TEARS[..] } else { &TEARS[2..3] };
    for &torn in tears {
        for writes in 0.. {
            let mut rig = Rig::formatted(geometry, geometry.align().bytes());
            prepare(&mut rig);
            let untouched = rig.names();
            rig.torn = torn;
            rig.writes_left.set(writes);
            let member = Some(rig.member(1, 1));
            let ended = rig.drive(member, command);
            let when = format!("{command:?} cut off at write {writes}, {torn} bytes torn");
            rig.assert_sound(&when);
            let names: Vec<String> = rig.names().into_iter().map(|(_, name)| name).collect();
            let old: Vec<String> = untouched.into_iter().map(|(_, name)| name).collect();
            assert!(names == old || names == after, "{when}: {names:?}");
            if ended.is_some() {
                assert_eq!(names, after);
                break;
            }
            cuts += 1;
            // The host comes back with a new generation and goes on.
            rig.writes_left.set(u32::MAX);
            rig.lockspace(LockspaceNow::Alive { generation: 2 });
            let back = Some(rig.member(1, 2));
            let made = rig.run_as(back, create("next")).unwrap();
            rig.assert_sound(&when);
            assert!(
                rig.entries()
                    .iter()
                    .all(|(slot, e)| Name::from_field(&e.name) == name("next")
                        || rig.area(*slot) != made.offset)
            );
            assert_eq!(rig.names().len(), names.len() + 1, "{when}: no entry was lost");
        }
    }
    // Acquire: three writes, the operation's own, release: two.
    assert!(cuts >= tears.len() * 6, "{cuts}");
}

#[test]
fn cut_off_create() {
    for geometry in [Geometry::B512_M1, Geometry::B4096_M8] {
        cut_everywhere(geometry, create("b"), |rig| assert!(rig.run(create("a")).is_ok()), &["a", "b"]);
    }
}

#[test]
fn cut_off_delete() {
    let prepare = |rig: &mut Rig| {
        for resource in ["a", "b", "c"] {
            rig.run(create(resource)).unwrap();
        }
    };
    for geometry in [Geometry::B512_M1, Geometry::B4096_M8] {
        cut_everywhere(geometry, delete("b"), prepare, &["a", "c"]);
    }
}

#[test]
fn cut_off_create_where_something_was_deleted() {
    let prepare = |rig: &mut Rig| {
        rig.run(create("a")).unwrap();
        rig.run(create("b")).unwrap();
        rig.run(delete("a")).unwrap();
    };
    cut_everywhere(Geometry::B512_M1, create("c"), prepare, &["c", "b"]);
}

#[test]
fn cut_off_update() {
    let prepare = |rig: &mut Rig| {
        rig.run(create("a")).unwrap();
        rig.run(create("b")).unwrap();
    };
    let remove = RindexCommand::Remove { offset: 3 << 20, seed: 0 };
    cut_everywhere(Geometry::B512_M1, remove, prepare, &["b"]);
    // The lease whose entry is made stays in its place until then, unless the next create takes it.
    let without = |rig: &mut Rig| {
        prepare(rig);
        rig.run(RindexCommand::Remove { offset: 4 << 20, seed: 0 }).unwrap();
    };
    let add = RindexCommand::Add { name: name("b"), offset: 4 << 20, seed: 0 };
    cut_everywhere(Geometry::B512_M1, add, without, &["a", "b"]);
}

#[test]
fn cut_off_rebuild() {
    let prepare = |rig: &mut Rig| {
        rig.run(create("a")).unwrap();
        rig.run(create("b")).unwrap();
        rig.run(RindexCommand::Remove { offset: rig.area(0), seed: 0 }).unwrap();
    };
    // Cut off before the index is written, the area of the lost entry would be made anew: that is what it was lost for.
    for writes in 0..6 {
        for torn in TEARS {
            let mut rig = Rig::usual();
            prepare(&mut rig);
            rig.writes_left.set(writes);
            rig.torn = torn;
            let member = Some(rig.member(1, 1));
            let _ = rig.drive(member, RindexCommand::Rebuild { seed: 0 });
            rig.assert_sound(&format!("cut off at write {writes}"));
        }
    }
}

#[test]
fn cut_off_format() {
    for torn in TEARS {
        for writes in 0..6 {
            let mut rig = Rig::usual();
            rig.run(create("a")).unwrap();
            rig.writes_left.set(writes);
            rig.torn = torn;
            let format = RindexCommand::Format { geometry: Geometry::B512_M1, max_resources: 0 };
            assert_eq!(rig.drive(None, format), None);
            let when = format!("format cut off at write {writes}, {torn} bytes torn");
            // The old index, none, or the new one.
            let begun = writes > 0 || torn > 0;
            let ended = writes == 5 && torn > 0;
            if begun && !ended {
                rig.writes_left.set(u32::MAX);
                let looked = rig.run_as(None, lookup("", 0)).unwrap_err();
                assert!(matches!(looked, RindexError::Magic { found: 0 }), "{when}: {looked}");
                assert_eq!(rig.run_as(None, format), entry("", 0));
            }
            rig.assert_sound(&when);
        }
    }
}
