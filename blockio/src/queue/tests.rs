//! A queue that finds no thread.

use super::*;
use crate::disk::Access;

/// From now on no thread is to be had for this engine.
pub(crate) fn without_threads<B: Backend>(mut engine: QueuedEngine<B>) -> QueuedEngine<B> {
    engine.hire = |_, _| Err(io::Error::from_raw_os_error(libc::EAGAIN));
    engine
}

/// Calls wait until the gate is opened, those of the sector 0 only.
struct Gated {
    gate: Arc<(Mutex<bool>, Condvar)>,
    ended: Mutex<Vec<(u64, i64)>>,
}

impl Backend for Gated {
    const KIND: EngineKind = EngineKind::Threads;
    const MAX_SUBMITTERS: usize = 4;
    const CALLER_MAY_ISSUE: bool = true;

    unsafe fn issue(&self, op: &RawOp) -> Result<(), i32> {
        if op.offset == 0 {
            let open = self.gate.0.lock().unwrap();
            drop(self.gate.1.wait_while(open, |open| !*open).unwrap());
        }
        self.ended.lock().unwrap().push((op.slot, i64::from(op.len)));
        Ok(())
    }

    fn drain(&self, sink: &mut dyn FnMut(u64, i64)) {
        self.ended.lock().unwrap().drain(..).for_each(|(slot, result)| sink(slot, result));
    }
}

fn read(engine: &mut impl Engine, disk: &Arc<Disk>, sector: u64) -> Ticket {
    engine.submit(IoRequest::read(Arc::clone(disk), sector * 512, AlignedBuf::zeroed(512)))
}

fn disk() -> Arc<Disk> {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(1 << 20).unwrap();
    Disk::open(file.path(), Access::ReadWrite).unwrap()
}

fn ended(engine: &mut impl Engine) -> Vec<(Ticket, bool)> {
    let mut done = Vec::new();
    engine.reap(&mut done);
    done.iter().map(|done| (done.ticket, done.result.is_ok())).collect()
}

#[test]
fn where_no_thread_is_to_be_had_operations_are_the_caller_s_one_by_one_or_are_refused() {
    let disk = disk();
    let mut engine = without_threads(QueuedEngine::new(crate::threads::Threads::new).unwrap());
    // Every call has taken long.
    engine.defer(Duration::ZERO);
    let tickets = [1, 300, 600].map(|sector| read(&mut engine, &disk, sector));
    assert!(engine.start() && engine.errand().is_none());
    assert!(engine.last_resort(&|_| false).is_none());
    engine.last_resort(&|ticket| ticket == tickets[1]).unwrap().run();
    assert_eq!(ended(&mut engine), [(tickets[1], true)]);
    assert!(engine.start());
    engine.last_resort(&|_| true).unwrap().run();
    assert_eq!(ended(&mut engine), [(tickets[0], true)]);
    engine.refuse();
    assert_eq!(ended(&mut engine), [(tickets[2], false)]);
    assert!(!engine.start() && engine.in_flight() == 0);
}

#[test]
fn what_threads_that_hang_would_leave_waiting_is_the_caller_s() {
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let backend = Gated { gate: Arc::clone(&gate), ended: Mutex::default() };
    let mut engine = QueuedEngine::new(|_| Ok(backend)).unwrap();
    engine.defer(Duration::MAX);
    let disk = disk();
    let stuck = read(&mut engine, &disk, 0);
    assert!(!engine.start());
    while engine.shared.lock().issued == 0 {
        thread::yield_now();
    }
    let mut engine = without_threads(engine);
    let next = read(&mut engine, &disk, 5);
    assert!(engine.start());
    // Its thread may come back.
    engine.refuse();
    assert_eq!(ended(&mut engine), []);
    engine.last_resort(&|_| true).unwrap().run();
    assert_eq!(ended(&mut engine), [(next, true)]);
    *gate.0.lock().unwrap() = true;
    gate.1.notify_all();
    while engine.in_flight() > 0 {
        for end in ended(&mut engine) {
            assert_eq!(end, (stuck, true));
        }
    }
}
