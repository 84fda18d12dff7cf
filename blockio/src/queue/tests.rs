//! A queue that finds no thread.

use super::*;
use crate::buffer::AlignedBuf;
use crate::disk::{Access, Disk};
use crate::error::IoErrorKind;
use sanlock_lease::machine::IoFailure;
use sanlock_lease::timing::MonoTime;

/// From now on no thread is to be had for this engine.
pub(crate) fn without_threads<B: Backend>(mut engine: QueuedEngine<B>) -> QueuedEngine<B> {
    engine.hire = |_, _| Err(io::Error::from_raw_os_error(libc::EAGAIN));
    engine
}

/// Calls wait until the gate is opened, those of the sector 0 only.
#[derive(Default)]
struct Gated {
    gate: Arc<(Mutex<bool>, Condvar)>,
    ended: Mutex<Vec<(u64, i64)>>,
    /// Where calls were made.
    made: Arc<Mutex<Vec<u64>>>,
}

impl Backend for Gated {
    const KIND: EngineKind = EngineKind::Threads;
    const MAX_SUBMITTERS: usize = 4;
    const CALLER_MAY_ISSUE: bool = true;

    unsafe fn issue(&self, op: &RawOp) -> Result<(), i64> {
        if !op.may_begin() {
            return Err(NEVER_STARTED);
        }
        self.made.lock().unwrap().push(op.offset);
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
    let backend = Gated { gate: Arc::clone(&gate), ..Gated::default() };
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

/// As who goes over to a shared hold has them where there is no AIO: the second one waits for the first, which may hang.
#[test]
fn the_second_of_two_writes_does_not_begin_after_its_time() {
    for late in [true, false] {
        let gate = Arc::new((Mutex::new(false), Condvar::new()));
        let backend = Gated { gate: Arc::clone(&gate), ..Gated::default() };
        let mut engine = QueuedEngine::new(|_| Ok(backend)).unwrap();
        engine.defer(Duration::MAX);
        let disk = disk();
        let until = Some(monotonic_now().plus_millis(if late { 1 } else { 600_000 }));
        let tickets = [(0, None), (5, until)].map(|(sector, until)| write(&mut engine, &disk, sector, until));
        let errand = engine.errand().unwrap();
        let caller = thread::spawn(|| errand.run());
        while monotonic_now() <= until.filter(|_| late).unwrap_or_default() {
            thread::yield_now();
        }
        *gate.0.lock().unwrap() = true;
        gate.1.notify_all();
        caller.join().unwrap();
        let mut all = ended(&mut engine);
        all.sort_by_key(|(ticket, _)| ticket.0);
        assert_eq!(all, [(tickets[0], true), (tickets[1], !late)]);
        assert_eq!(engine.in_flight(), 0);
    }
}

/// The kernel may refuse it at first, and between two attempts it may be taken back.
#[test]
fn what_was_about_to_begin_can_still_be_taken_back() {
    let raw = |op| RawOp {
        op,
        fd: -1,
        kind: crate::disk::DiskKind::File,
        ptr: std::ptr::null_mut(),
        len: 512,
        offset: 0,
        slot: 0,
        until: None,
        permit: Permit::default(),
    };
    for (op, after) in [(crate::error::Op::Write, false), (crate::error::Op::Read, true)] {
        let raw = raw(op);
        assert!(raw.may_begin() && raw.may_begin());
        raw.permit.revoke();
        assert_eq!(raw.may_begin(), after, "{op:?}");
    }
}

/// Likewise: whose lockspace is gone meanwhile has it taken back.
#[test]
fn the_second_of_two_writes_does_not_begin_once_it_is_taken_back() {
    let (gate, made) = (Arc::new((Mutex::new(false), Condvar::new())), Arc::<Mutex<Vec<u64>>>::default());
    let backend = Gated { gate: Arc::clone(&gate), made: Arc::clone(&made), ..Gated::default() };
    let mut engine = QueuedEngine::new(|_| Ok(backend)).unwrap();
    engine.defer(Duration::MAX);
    let disk = disk();
    let tickets = [0, 5].map(|sector| write(&mut engine, &disk, sector, None));
    let errand = engine.errand().unwrap();
    let caller = thread::spawn(|| errand.run());
    while made.lock().unwrap().is_empty() {
        thread::yield_now();
    }
    for ticket in tickets {
        assert!(engine.withdraw(ticket).is_none());
    }
    *gate.0.lock().unwrap() = true;
    gate.1.notify_all();
    caller.join().unwrap();
    let mut done = Vec::new();
    engine.reap(&mut done);
    done.sort_by_key(|done| done.ticket.0);
    let kinds: Vec<_> = done.iter().map(|done| done.result.as_ref().map_err(|error| error.kind)).collect();
    assert_eq!(kinds, [Ok(&()), Err(IoErrorKind::NeverStarted)], "what has begun goes on");
    assert_eq!((made.lock().unwrap().clone(), engine.in_flight()), (vec![0], 0));
}

fn write(engine: &mut impl Engine, disk: &Arc<Disk>, sector: u64, until: Option<MonoTime>) -> Ticket {
    let mut buf = AlignedBuf::zeroed(512);
    buf.fill(7);
    engine.submit(IoRequest { until, ..IoRequest::write(Arc::clone(disk), sector * 512, buf) })
}

/// Which sectors below this one were written.
fn written(engine: &mut impl Engine, disk: &Arc<Disk>, end: u64) -> Vec<u64> {
    let tickets: Vec<Ticket> = (0..end).map(|sector| read(engine, disk, sector)).collect();
    while let Some(errand) = engine.errand() {
        errand.run();
    }
    let mut done = Vec::new();
    engine.reap(&mut done);
    let is_written = |ticket: &Ticket| done.iter().any(|done| done.ticket == *ticket && done.buf[0] == 7);
    (0..end).zip(&tickets).filter(|(_, ticket)| is_written(ticket)).map(|(sector, _)| sector).collect()
}

#[test]
fn what_is_taken_back_before_it_has_begun_does_not_happen() {
    let disk = disk();
    let mut engine = QueuedEngine::new(crate::threads::Threads::new).unwrap();
    engine.defer(Duration::MAX);
    let tickets = [0, 1, 2].map(|sector| write(&mut engine, &disk, sector, None));
    let errand = engine.errand().unwrap();
    assert!(engine.withdraw(tickets[0]).is_none(), "the caller has it, and is told");
    let back = engine.withdraw(tickets[1]).unwrap();
    assert_eq!((back.offset, back.len, back.buf[0]), (512, 512, 7));
    assert!(engine.withdraw(tickets[1]).is_none() && engine.in_flight() == 2);
    errand.run();
    assert!(engine.withdraw(tickets[0]).is_none());
    engine.errand().unwrap().run();
    assert!(engine.withdraw(tickets[2]).is_none());
    let mut all = ended(&mut engine);
    all.sort_by_key(|(ticket, _)| ticket.0);
    assert_eq!(all, [(tickets[0], false), (tickets[2], true)]);
    assert_eq!((engine.in_flight(), written(&mut engine, &disk, 4)), (0, vec![2]));
}

#[test]
fn what_nobody_has_come_for_in_time_does_not_happen() {
    let disk = disk();
    let past = Some(monotonic_now());
    let mut engine = QueuedEngine::new(crate::threads::Threads::new).unwrap();
    engine.defer(Duration::MAX);
    let late = write(&mut engine, &disk, 0, past);
    assert!(engine.errand().is_none());
    let mut done = Vec::new();
    assert_eq!(engine.reap(&mut done), 1);
    let kind = done[0].result.as_ref().unwrap_err().kind;
    assert_eq!(
        (done[0].ticket, kind, kind.failure()),
        (late, IoErrorKind::NeverStarted, IoFailure::TimedOut)
    );
    let late = write(&mut engine, &disk, 1, past);
    let other = write(&mut engine, &disk, 5, None);
    assert!(engine.last_resort(&|ticket| ticket == late).is_none(), "nor anything else instead");
    assert_eq!(ended(&mut engine), [(late, false)]);
    assert!(engine.withdraw(other).is_some());
    let in_time = write(&mut engine, &disk, 2, Some(monotonic_now().plus_secs(600)));
    engine.errand().unwrap().run();
    assert_eq!(ended(&mut engine), [(in_time, true)]);
    assert_eq!(written(&mut engine, &disk, 4), [2]);

    // A thread of the engine does as the caller.
    let mut engine = QueuedEngine::new(crate::threads::Threads::new).unwrap();
    let late = write(&mut engine, &disk, 3, past);
    let end = loop {
        let ended = ended(&mut engine);
        if !ended.is_empty() {
            break ended;
        }
        thread::yield_now();
    };
    assert_eq!(end, [(late, false)]);
    engine.defer(Duration::MAX);
    assert_eq!(written(&mut engine, &disk, 4), [2]);
}
