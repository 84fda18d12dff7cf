//! `renewal --plot`: our command draws what the text says, of our daemon and of the original's.

use std::time::Duration;

use sanlock_conformance::bounded;
use sanlock_conformance::storage::{LOCKSPACE, scratch_dir};
use sanlock_conformance::{Program, Scene, Storage};

#[test]
fn the_picture_has_every_renewal_and_the_limits() {
    for program in [Program::Ours, Program::Reference].into_iter().filter(|program| program.available()) {
        let scene = Scene::asked_by(Storage::file(), program, Program::Ours, 1, 0);
        let host = scene.host(0);
        let lines = || host.client(&["client", "renewal", "-s", LOCKSPACE]).success().stdout.lines().count();
        bounded::wait_until("three renewals", Duration::from_secs(30), || lines() >= 3);
        let dir = scratch_dir("plot");
        let file = dir.path().join("history.svg");
        let before = lines();
        let plot = |path: &str| host.client(&["renewal", "-s", LOCKSPACE, "--plot", path]);
        let output = plot(file.to_str().unwrap_or_default()).success();
        assert_eq!((output.stdout.as_str(), output.stderr.as_str()), ("", ""), "{}", program.word());
        let picture = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{error}"));
        // Each renewal is a dot for its read and one for its write.
        let dots = picture.matches("<circle").count();
        assert!(dots % 2 == 0 && (before..=lines()).contains(&(dots / 2)), "{dots} {before}: {picture}");
        for words in
            [LOCKSPACE, "io timeout 1 s", "2 s: the next renewal is due", "8 s: the lockspace has failed"]
        {
            assert!(picture.contains(words), "{words}: {picture}");
        }

        let nowhere = dir.path().join("none/history.svg");
        let output = plot(nowhere.to_str().unwrap_or_default());
        assert_eq!((output.code, output.stdout.as_str()), (1, ""));
        for words in ["none/history.svg", "ENOENT (-2)", "next: name a file in a directory that exists"] {
            assert!(output.stderr.contains(words), "{words}: {output}");
        }
        let output = host.client(&["renewal", "-s", "nothing", "--plot", "/dev/null"]);
        assert!(output.code == 1 && output.stderr.contains("lockspace nothing"), "{output}");
    }
}
