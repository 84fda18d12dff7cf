//! How much a decoder asks for next: all that is known to follow, so that a message takes few reads, and never a byte of the next
//! message (socket-protocol.md 2.7, 6).

use sanlock_wire::reply_decoder::ReplyDecoder;
use sanlock_wire::{
    Command, Disk, Header, Host, Lockspace, Name, Options, Reply, Request, RequestBody, RequestDecoder,
    Resource, ResourceSpec, StateRecord, StateText,
};

/// A resource with so many disks.
fn spec(disks: usize) -> ResourceSpec {
    let resource = Resource::new(Name::truncated("LS"), Name::truncated("R"));
    ResourceSpec::new(resource, vec![Disk::new("/d", 0).unwrap(); disks]).unwrap()
}

/// A live host.
fn host() -> Host {
    Host {
        host_id: 3.into(),
        generation: 4.into(),
        timestamp: 5.into(),
        io_timeout: 10.into(),
        flags: 3.into(),
    }
}

/// What a decoder asks for, read by read, when each read brings all of it.
fn reads(bytes: &[u8]) -> (Vec<usize>, Request) {
    let (mut decoder, mut at, mut wants) = (RequestDecoder::new(), 0, Vec::new());
    loop {
        let want = decoder.wants();
        wants.push(want);
        let request = decoder.feed(&mut &bytes[at..at + want]).unwrap();
        at += want;
        if let Some(request) = request {
            assert_eq!(at, bytes.len());
            return (wants, request);
        }
    }
}

#[test]
fn a_release_is_read_at_once() {
    for (count, number) in [(1, 1), (2, 2), (7, 7)] {
        let request = Request {
            header: Header::request(Command::Release, 0, count * Resource::SIZE, number, u32::MAX),
            body: RequestBody::Release(vec![*spec(1).resource(); count]),
        };
        let (wants, read) = reads(&request.encode());
        assert_eq!(wants, [32, count * Resource::SIZE]);
        assert_eq!(read, request);
    }
}

/// How many disks a resource has stands in the resource: they are asked for together with what is known to follow.
#[test]
fn an_acquire_is_read_with_one_read_for_each_resource_more() {
    let resources = vec![spec(1), spec(4), spec(2)];
    let (resource, disk, options) = (Resource::SIZE, Disk::SIZE, Options::SIZE);
    let payload = 3 * resource + 7 * disk + options;
    let request = Request {
        header: Header::request(Command::Acquire, 0, payload, 3, u32::MAX),
        body: RequestBody::Acquire { resources, options: Options::new(Name::EMPTY) },
    };
    let (wants, read) = reads(&request.encode());
    assert_eq!(wants, [32, 3 * resource + options, disk, 4 * disk, 2 * disk]);
    assert_eq!(read, request);
}

/// Socket-protocol.md 3.7.
#[test]
fn eight_resources_can_be_acquired_at_once_and_nine_are_refused() {
    let request = |count: u32| Request {
        header: Header::request(Command::Acquire, 0, 0, count, u32::MAX),
        body: RequestBody::Acquire {
            resources: vec![spec(1); count as usize],
            options: Options::new(Name::EMPTY),
        },
    };
    assert_eq!(reads(&request(8).encode()).1, request(8));
    let mut decoder = RequestDecoder::new();
    let read = decoder.feed(&mut request(9).header.encode().as_slice()).unwrap().unwrap();
    assert!(matches!(read.body, RequestBody::Refused(_)), "{read:?}");
}

/// The same for a client and its reply.
fn reply_reads(command: Command, bytes: &[u8]) -> (Vec<usize>, Option<Reply>) {
    let (mut decoder, mut at, mut wants) = (ReplyDecoder::new(command), 0, Vec::new());
    while at < bytes.len() {
        let want = decoder.wants();
        wants.push(want);
        let reply = decoder.feed(&mut &bytes[at..at + want]).unwrap();
        at += want;
        if let Some(reply) = reply {
            assert_eq!(at, bytes.len());
            return (wants, Some(reply));
        }
    }
    (wants, None)
}

#[test]
fn lists_are_read_at_once() {
    let request = Header::request(Command::GetHosts, 0, 0, 0, 0);
    let hosts = vec![host(); 3];
    let list = Reply::get_hosts(&request, hosts.clone());
    let (wants, read) = reply_reads(Command::GetHosts, &list.encode());
    assert_eq!((wants, read), (vec![32, 3 * Host::SIZE], Some(list)));
    let owners = Reply::read_resource_owners(&request, 0, *spec(1).resource(), hosts);
    let (wants, read) = reply_reads(Command::ReadResourceOwners, &owners.encode());
    assert_eq!((wants, read), (vec![32, Resource::SIZE + 3 * Host::SIZE], Some(owners)));
    let spaces = Reply::get_lockspaces(&request, vec![Lockspace::named(Name::truncated("LS")); 3]);
    let (wants, read) = reply_reads(Command::GetLockspaces, &spaces.encode());
    assert_eq!((wants, read), (vec![32, 3 * Lockspace::SIZE], Some(spaces)));
}

#[test]
fn a_state_record_is_read_with_its_text_and_the_disks_that_its_resource_names() {
    let request = Header::request(Command::Status, 0, 0, 0, 0);
    let text = || StateText::new().item("list", "held");
    let records = vec![
        StateRecord::daemon(Name::truncated("host"), text()),
        StateRecord::lockspace(Lockspace::named(Name::truncated("LS")), text()),
        StateRecord::resource(spec(4), 1, 1, text()),
    ];
    let (fixed, text) = (80, "list=held".len() + 1);
    let (wants, _) = reply_reads(Command::Status, &Reply::status(&request, records).encode());
    let expected =
        [32, fixed, text, fixed, text + Lockspace::SIZE, fixed, text + Resource::SIZE, 4 * Disk::SIZE];
    assert_eq!(wants, expected);
}
