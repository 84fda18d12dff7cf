use super::*;

/// A file of sevens, served with this trouble; `None` where file systems in user space are not to be had.
fn served(trouble: Trouble) -> Option<(TempDir, PathBuf, ServedFile)> {
    let dir = tempfile::tempdir().unwrap();
    let behind = dir.path().join("file");
    std::fs::write(&behind, vec![7; 1 << 16]).unwrap();
    match ServedFile::over(&behind, dir.path(), trouble) {
        Ok(file) => Some((dir, behind, file)),
        Err(error) => {
            assert!(std::env::var_os("CI").is_none(), "no FUSE ({error}), and CI must not skip");
            eprintln!("skipped: no FUSE ({error})");
            None
        }
    }
}

/// Waits for what is bound to come, on a machine that does other things too.
fn eventually(what: &str, mut has_come: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !has_come() {
        assert!(Instant::now() < end, "not within a minute: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

fn open(served: &ServedFile) -> File {
    File::options().read(true).write(true).open(served.path()).unwrap()
}

#[test]
fn every_operation_takes_longer_and_they_wait_side_by_side() {
    const DELAY: Duration = Duration::from_millis(500);
    let Some((_dir, behind, slow)) = served(Trouble::slow(DELAY)) else { return };
    let file = open(&slow);
    let begin = Instant::now();
    thread::scope(|scope| {
        for n in 0..8_u64 {
            let file = &file;
            scope.spawn(move || file.write_all_at(&[1; 512], n * 512).unwrap());
        }
    });
    let written = begin.elapsed();
    assert!(written >= DELAY, "{written:?}");
    assert!(written < 8 * DELAY, "one after the other: {written:?}");
    let begin = Instant::now();
    let mut bytes = [0; 1024];
    file.read_exact_at(&mut bytes, 7 * 512).unwrap();
    assert!(begin.elapsed() >= DELAY);
    assert_eq!((bytes[511], bytes[512]), (1, 7));
    drop(file);
    drop(slow);
    assert_eq!(std::fs::read(&behind).unwrap()[..4096], [1; 4096]);
}

#[test]
fn opens_and_closes_hang_until_they_are_answered() {
    let Some((_dir, _behind, file)) = served(Trouble::default()) else { return };
    let hangs = |call: &(dyn Fn() + Sync)| {
        thread::scope(|scope| {
            let call = scope.spawn(call);
            eventually("it hangs", || file.hanging() > 0);
            assert!(!call.is_finished());
            file.answer();
            call.join().unwrap();
        });
    };
    file.hang(Hang::Opens);
    hangs(&|| drop(open(&file)));
    drop(open(&file));
    file.hang(Hang::Closes);
    hangs(&|| drop(open(&file)));
    assert_eq!(file.hanging(), 0);
}

#[test]
fn every_operation_fails_as_it_should() {
    let Some((_dir, behind, broken)) = served(Trouble::broken(Errno::EIO)) else { return };
    let file = open(&broken);
    let errno = |error: io::Error| error.raw_os_error();
    assert_eq!(file.read_at(&mut [0; 512], 0).map_err(errno), Err(Some(Errno::EIO as i32)));
    assert_eq!(file.write_at(&[0; 512], 0).map_err(errno), Err(Some(Errno::EIO as i32)));
    drop((file, broken));
    assert_eq!(std::fs::read(&behind).unwrap(), vec![7; 1 << 16]);
}

#[test]
fn what_is_denied_fails_and_is_carried_out() {
    let Some((_dir, behind, served)) = served(Trouble::default()) else { return };
    let file = open(&served);
    served.deny(512, Duration::ZERO);
    assert!(file.write_at(&[1; 512], 0).is_ok());
    let failed = file.write_at(&[2; 512], 512).unwrap_err();
    assert_eq!(failed.raw_os_error(), Some(Errno::EIO as i32));
    eventually("it is carried out", || served.carried_out() > 0);
    assert_eq!(std::fs::read(&behind).unwrap()[..1024], [[1; 512], [2; 512]].concat());
    assert!(file.write_at(&[3; 512], 512).is_ok(), "one only");
}

#[test]
fn one_write_is_not_carried_out_and_something_else_happens() {
    let Some((_dir, behind, served)) = served(Trouble::default()) else { return };
    let file = open(&served);
    let (sender, happened) = std::sync::mpsc::channel();
    served.stop(512..4096, 2, move || sender.send(()).unwrap());
    for (offset, ok) in [(0, true), (512, true), (4096, true), (1024, false), (1536, true)] {
        assert!(happened.try_recv().is_err(), "before {offset}");
        assert_eq!(file.write_at(&[1; 512], offset).is_ok(), ok, "{offset}");
        assert_eq!(happened.try_recv().is_ok(), !ok, "{offset}");
    }
    assert!(!served.go_on());
    served.stop(0..512, 1, || panic!("nothing comes there"));
    assert!(served.go_on());
    drop((file, served));
    let written = std::fs::read(&behind).unwrap();
    let blocks: Vec<u8> = written[..5 * 512].chunks(512).map(|block| block[0]).collect();
    assert_eq!(blocks, [1, 1, 7, 1, 7]);
}

#[test]
fn something_happens_after_a_write_before_its_user_hears_of_it() {
    let Some((_dir, behind, served)) = served(Trouble::default()) else { return };
    let file = open(&served);
    let (sender, happened) = std::sync::mpsc::channel();
    let seen = behind.clone();
    served.follow(512..1024, 1, move || sender.send(std::fs::read(seen).unwrap()[512]).unwrap());
    assert!(file.write_at(&[1; 512], 0).is_ok() && happened.try_recv().is_err());
    assert!(file.write_at(&[2; 512], 512).is_ok());
    assert_eq!(happened.try_recv(), Ok(2));
    assert!(file.write_at(&[3; 512], 512).is_ok(), "one only");
    assert!(!served.go_on());
}

#[test]
fn what_is_spoilt_cannot_be_read() {
    let Some((_dir, _behind, served)) = served(Trouble::default()) else { return };
    let file = open(&served);
    served.spoil(1024..1536);
    for (offset, length, ok) in [(0, 1024, true), (0, 1025, false), (1535, 1, false), (1536, 512, true)] {
        assert_eq!(file.read_at(&mut vec![0; length], offset).is_ok(), ok, "{length} from {offset} on");
    }
    assert!(file.write_at(&[1; 512], 1024).is_ok());
    served.spoil(0..0);
    assert!(file.read_at(&mut [0; 4096], 0).is_ok());
}
