//! Reading the requests for leases held here (lease-algorithms.md 8.2).
//!
//! A lockspace looks once at a time. Its leases are sorted by their disk, and a few short-lived threads take one disk after another, so
//! that one that does not answer delays nobody whose lease lies elsewhere. What was found is told at once. A disk that did not answer for
//! one lease is not asked for the others on it: they are looked at when somebody asks again.

use sanlock_sys::thread;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use sanlock_lease::text::ResourceSpec as LeaseSpec;
use sanlock_manager::{Event, LockspaceId, Request, ResourceId};

use crate::hirer::Hirer;
use crate::log::Log;
use crate::oneshot::ToolError;

/// Threads of one looking: as many disks may be silent, each for as long as an open and a read may take, before others wait for them.
const LOOKERS_MAX: usize = 8;
/// Their name.
const NAME: &str = "sanlock-request";
/// Stack of such a thread; buffers are on the heap.
const STACK: usize = 128 * 1024;

/// The leases on one disk.
type Group = Vec<(ResourceId, LeaseSpec)>;

/// What the threads of a looking share. The last one that lets go of it says that all is done.
struct Looking<T: Fn(Event)> {
    ls: LockspaceId,
    groups: Mutex<VecDeque<Group>>,
    tell: T,
}

impl<T: Fn(Event)> Looking<T> {
    /// Body of a thread.
    fn work<R>(&self, log: &Log, reader: &impl Fn() -> Option<R>)
    where
        R: FnMut(&LeaseSpec) -> Result<(u64, u32), ToolError>,
    {
        let Some(mut read) = reader() else { return };
        while let Some(group) = next(&self.groups) {
            look_at(group, log, &mut read, &self.tell);
        }
    }
}

impl<T: Fn(Event)> Drop for Looking<T> {
    fn drop(&mut self) {
        (self.tell)(Event::RequestsLooked { ls: self.ls });
    }
}

/// Sorts leases by the disk on which their request lies, the first one, in the order in which the disks first appear.
fn by_disk(leases: Vec<(ResourceId, LeaseSpec)>) -> VecDeque<Group> {
    let mut groups: VecDeque<Group> = VecDeque::new();
    let mut places: HashMap<Option<Vec<u8>>, usize> = HashMap::new();
    for (id, spec) in leases {
        let place = *places.entry(spec.disks.first().map(|disk| disk.path.clone())).or_insert(groups.len());
        match groups.get_mut(place) {
            Some(group) => group.push((id, spec)),
            None => groups.push_back(vec![(id, spec)]),
        }
    }
    groups
}

/// Has the requests for these leases read, by a thread that is hired and starts the others. `reader` makes what one thread reads with: the version asked
/// for and the force mode of a lease. Each request goes to `tell` when it is found, and at last the end of it all, also if no thread is to be had: then nothing is
/// looked at. Waits for nothing.
pub(super) fn look<R>(
    ls: LockspaceId,
    leases: Vec<(ResourceId, LeaseSpec)>,
    hirer: &Hirer,
    log: &Log,
    reader: impl Fn() -> Option<R> + Clone + Send + 'static,
    tell: impl Fn(Event) + Send + Sync + 'static,
) where
    R: FnMut(&LeaseSpec) -> Result<(u64, u32), ToolError>,
{
    let groups = by_disk(leases);
    let others = groups.len().min(LOOKERS_MAX).saturating_sub(1);
    let looking = Arc::new(Looking { ls, groups: Mutex::new(groups), tell });
    let unable = log.clone();
    let log = log.clone();
    let work = move || {
        for _ in 0..others {
            let (looking, log, reader) = (Arc::clone(&looking), log.clone(), reader.clone());
            // Without it those that there are do it all.
            if thread::spawn(NAME, STACK, move || looking.work(&log, &reader)).is_err() {
                break;
            }
        }
        looking.work(&log, &reader);
    };
    hirer.hire(NAME, STACK, work, move |error| {
        unable.error(format_args!("no thread to look for requests: {error}"));
    });
}

fn next(groups: &Mutex<VecDeque<Group>>) -> Option<Group> {
    groups.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
}

fn look_at(
    group: Group,
    log: &Log,
    read: &mut impl FnMut(&LeaseSpec) -> Result<(u64, u32), ToolError>,
    tell: &impl Fn(Event),
) {
    let mut left = group.into_iter();
    while let Some((resource, spec)) = left.next() {
        match read(&spec) {
            // Nobody asks.
            Ok((_, 0)) => {}
            Ok((lver, force_mode)) => {
                tell(Event::RequestFound { request: Request { resource, lver, force_mode } });
            }
            Err(error) => {
                log.error(format_args!(
                    "request for {}:{} cannot be read: {error}",
                    spec.lockspace, spec.name
                ));
                if error.is_silence() {
                    let others = left.len();
                    if others > 0 {
                        log.error(format_args!("the same disk is not asked about {others} other leases now"));
                    }
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hirer::tests::gated;
    use sanlock_blockio::OpenError;
    use sanlock_lease::record::RequestError;
    use sanlock_lease::text::DiskSpec;
    use std::sync::mpsc;
    use std::time::Duration;

    /// For what happens at once, on a machine that does other things too.
    const SHORT: Duration = Duration::from_secs(60);
    const LS: LockspaceId = LockspaceId(1);

    fn hirer() -> Hirer {
        Hirer::start("looking-hire", || ()).unwrap()
    }

    fn lease(id: u64, path: &str) -> (ResourceId, LeaseSpec) {
        let disks = vec![DiskSpec { path: path.as_bytes().to_vec(), offset: id << 20 }];
        (ResourceId(id), LeaseSpec { disks, ..LeaseSpec::default() })
    }

    fn path(spec: &LeaseSpec) -> &str {
        std::str::from_utf8(&spec.disks[0].path).unwrap()
    }

    fn silent() -> ToolError {
        ToolError::Open(OpenError::TimedOut { path: "dead".into() })
    }

    /// Other files on the same file system hang already.
    fn crowded() -> ToolError {
        ToolError::Open(OpenError::TooManyHanging { path: "dead".into(), limit: 16 })
    }

    fn found(id: u64) -> Event {
        Event::RequestFound { request: Request { resource: ResourceId(id), lver: 7, force_mode: 1 } }
    }

    fn end() -> Event {
        Event::RequestsLooked { ls: LS }
    }

    #[test]
    fn a_disk_that_does_not_answer_delays_no_lease_on_another() {
        let (tell, told) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let released = Arc::new(Mutex::new(released));
        let reader = move || {
            let released = Arc::clone(&released);
            Some(move |spec: &LeaseSpec| {
                if path(spec) == "dead" {
                    let _ended = released.lock().unwrap().recv();
                    return Err(silent());
                }
                Ok((7, 1))
            })
        };
        let leases = vec![lease(1, "dead"), lease(2, "well"), lease(3, "dead"), lease(4, "well")];
        look(LS, leases, &hirer(), &Log::in_memory(), reader, move |event| tell.send(event).unwrap());
        // Nobody has answered for the dead disk yet.
        assert_eq!(told.recv_timeout(SHORT), Ok(found(2)));
        assert_eq!(told.recv_timeout(SHORT), Ok(found(4)));
        assert!(told.try_recv().is_err(), "the looking is not over");
        drop(release);
        assert_eq!(told.recv_timeout(SHORT), Ok(end()));
    }

    #[test]
    fn a_silent_disk_is_asked_once_and_another_failure_concerns_one_lease() {
        for of_the_disk in [silent, crowded] {
            silence_is_met_once(of_the_disk);
        }
    }

    fn silence_is_met_once(of_the_disk: fn() -> ToolError) {
        let (tell, told) = mpsc::channel();
        let (asked, all_asked) = mpsc::channel();
        let reader = move || {
            let asked = asked.clone();
            Some(move |spec: &LeaseSpec| {
                asked.send((path(spec).to_owned(), spec.disks[0].offset >> 20)).unwrap();
                match (path(spec), spec.disks[0].offset >> 20) {
                    ("dead", _) => Err(of_the_disk()),
                    (_, 4) => Err(ToolError::Request(RequestError::Magic { found: 0 })),
                    // Nobody asks for it.
                    (_, 5) => Ok((9, 0)),
                    _ => Ok((7, 1)),
                }
            })
        };
        let leases = [(1, "dead"), (2, "dead"), (3, "dead"), (4, "well"), (5, "well"), (6, "well")]
            .map(|(id, path)| lease(id, path));
        look(LS, leases.to_vec(), &hirer(), &Log::in_memory(), reader, move |event| {
            tell.send(event).unwrap()
        });
        assert_eq!(told.iter().collect::<Vec<_>>(), [found(6), end()]);
        let mut all: Vec<(String, u64)> = all_asked.iter().collect();
        all.sort();
        let well = [4, 5, 6].map(|id| ("well".to_owned(), id));
        assert_eq!(all, [&[("dead".to_owned(), 1)][..], &well].concat());
    }

    #[test]
    fn without_anything_to_read_with_a_looking_ends_as_well() {
        type Reader = fn(&LeaseSpec) -> Result<(u64, u32), ToolError>;
        let (tell, told) = mpsc::channel();
        let leases = (0..20).map(|n| lease(n, &format!("disk{n}"))).collect();
        let log = Log::in_memory();
        look(LS, leases, &hirer(), &log, || None::<Reader>, move |event| tell.send(event).unwrap());
        assert_eq!(told.iter().collect::<Vec<_>>(), [end()]);
    }

    #[test]
    fn a_thread_that_is_long_in_coming_is_not_waited_for_and_one_that_does_not_come_ends_the_looking() {
        type Reader = fn(&LeaseSpec) -> Result<(u64, u32), ToolError>;
        let (hirer, come) = gated();
        for comes in [true, false] {
            let (tell, told) = mpsc::channel();
            let leases = vec![lease(1, "a"), lease(2, "b")];
            let reader = || Some((|_| Ok((7, 1))) as Reader);
            look(LS, leases, &hirer, &Log::in_memory(), reader, move |event| tell.send(event).unwrap());
            assert!(told.try_recv().is_err(), "this is here, and no thread has come");
            come.send(comes).unwrap();
            let mut events: Vec<Event> = told.iter().collect();
            assert_eq!(events.pop(), Some(end()));
            assert_eq!(events.len(), if comes { 2 } else { 0 });
        }
    }
}
