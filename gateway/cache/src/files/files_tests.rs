use std::{io::ErrorKind, os::unix::fs::PermissionsExt};

use super::{disk::ready, sim::Fault, *};

/// What every maker does, a line each; each in a folder of its own.
async fn table<F: Files>(folder: impl Fn(&'static str) -> F) {
    let kind = |outcome: io::Result<_>| outcome.map(drop as fn(F::File)).map_err(|error| error.kind());

    let files = folder("opening");
    assert_eq!(kind(files.open("a", Open::Existing).await), Err(ErrorKind::NotFound));
    assert_eq!(kind(files.open("a", Open::New).await), Ok(()));
    assert_eq!(kind(files.open("a", Open::New).await), Err(ErrorKind::AlreadyExists));
    assert_eq!(kind(files.open("a", Open::Existing).await), Ok(()));
    assert_eq!(kind(files.open("b", Open::Either).await), Ok(()));
    let file = files.open("a", Open::Either).await.unwrap();
    file.write_at(vec![7; 3], 0).await.0.unwrap();
    assert_eq!(files.list().await.unwrap(), [("a".to_owned(), 3), ("b".to_owned(), 0)]);

    let files = folder("bytes");
    let file = files.open("a", Open::New).await.unwrap();
    let (outcome, bytes) = file.write_at(b"hello".to_vec(), 4096).await;
    outcome.unwrap();
    assert_eq!((bytes, file.size().await.unwrap()), (b"hello".to_vec(), 4101));
    for (len, offset, expected) in [
        (5, 4096, Ok(b"hello".to_vec())),
        (3, 4097, Ok(b"ell".to_vec())),
        (2, 4095, Ok(b"\0h".to_vec())),
        (0, 4101, Ok(Vec::new())),
        (6, 4096, Err(ErrorKind::UnexpectedEof)),
        (1, 1 << 40, Err(ErrorKind::UnexpectedEof)),
    ] {
        let read = file.read_at(len, offset).await.map_err(|error| error.kind());
        assert_eq!(read, expected, "{len} at {offset}");
    }
    file.write_at(b"J".to_vec(), 4096).await.0.unwrap();
    file.write_at(vec![1; 1 << 20], 8192).await.0.unwrap();
    file.sync().await.unwrap();
    assert_eq!(file.read_at(5, 4096).await.unwrap(), b"Jello");
    assert_eq!(file.read_at(1 << 20, 8192).await.unwrap(), vec![1; 1 << 20]);
    // Never shorter.
    for (len, size) in [(1, 8192 + (1 << 20)), (3 << 20, 3 << 20), (2 << 20, 3 << 20)] {
        file.reserve(len).await.unwrap();
        assert_eq!(file.size().await.unwrap(), size);
    }
    assert_eq!(file.read_at(3, (3 << 20) - 3).await.unwrap(), [0; 3]);

    let files = folder("names");
    let error = |outcome: io::Result<()>| outcome.map_err(|error| error.kind());
    let file = files.open("old", Open::New).await.unwrap();
    file.write_at(b"1".to_vec(), 0).await.0.unwrap();
    let other = files.open("new", Open::New).await.unwrap();
    other.write_at(b"22".to_vec(), 0).await.0.unwrap();
    files.rename("old", "new").await.unwrap();
    assert_eq!(error(files.rename("old", "new").await), Err(ErrorKind::NotFound));
    assert_eq!(files.list().await.unwrap(), [("new".to_owned(), 1)]);
    // What is open stays readable.
    files.remove("new").await.unwrap();
    assert_eq!(error(files.remove("new").await), Err(ErrorKind::NotFound));
    assert_eq!(file.read_at(1, 0).await.unwrap(), b"1");
    assert_eq!(other.read_at(2, 0).await.unwrap(), b"22");
    files.sync_folder().await.unwrap();
    assert_eq!(files.list().await.unwrap(), []);
}

fn on_disk(executor: &Executor, name: &str) {
    let root = std::env::temp_dir().join(format!("zerohop-files-{name}-{}", std::process::id()));
    executor.block_on(table(|folder| executor.folder(root.join(folder)).unwrap()));
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&root.join("opening")), 0o700);
    assert_eq!(mode(&root.join("opening/a")), 0o600);
    executor.block_on(async {
        let files = executor.folder(root.join("opening")).unwrap();
        assert_eq!(files.path(), root.join("opening"));
        for bad in ["", ".", "..", "../a", "x/y", "a\0"] {
            let refused = files.open(bad, Open::Either).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{bad:?}");
        }
    });
    std::fs::remove_dir_all(root).unwrap();
}

#[test]
fn files_by_calls() {
    on_disk(&Executor::calls(), "calls");
}

#[test]
fn files_by_ring() {
    use std::io::Write;
    let executor = Executor::start();
    if let Executor::Calls(Some(why)) = &executor {
        // The count of tests reads it.
        let _ = writeln!(io::stdout().lock(), "SKIPPED files_by_ring: {why}");
        return;
    }
    on_disk(&executor, "ring");
}

#[test]
fn files_simulated() {
    let disk = SimDisk::new(1);
    ready(table(|folder| disk.folder(folder)));
    assert!(disk.written() > 1 << 20);
}

/// Ends of files and names by seed: each must be one of these, and each of these must be met.
fn met<T: Ord + std::fmt::Debug>(act: impl Fn(&SimDisk), see: impl Fn(&SimFiles) -> T, expected: &[T]) {
    let mut found = std::collections::BTreeSet::new();
    for seed in 0..400 {
        let disk = SimDisk::new(seed);
        act(&disk);
        found.insert(see(&disk.crash().folder("f")));
    }
    assert!(found.iter().eq(expected.iter()), "{found:?}");
}

fn names(files: &SimFiles) -> Vec<String> {
    let list = ready(files.list()).unwrap();
    list.into_iter().map(|(name, _)| name).collect()
}

fn first_of_sectors(files: &SimFiles) -> Vec<u8> {
    let file = ready(files.open("a", Open::Existing)).unwrap();
    let bytes = ready(file.read_at(1024, 0)).unwrap();
    assert!(
        bytes
            .chunks(512)
            .all(|sector| sector.iter().all(|byte| *byte == sector[0]))
    );
    vec![bytes[0], bytes[512]]
}

fn written(disk: &SimDisk, synced: bool) {
    let files = disk.folder("f");
    let file = ready(files.open("a", Open::New)).unwrap();
    ready(file.write_at(vec![1; 1024], 0)).0.unwrap();
    ready(file.sync()).unwrap();
    ready(files.sync_folder()).unwrap();
    ready(file.write_at(vec![2; 1024], 0)).0.unwrap();
    ready(file.write_at(vec![3; 1024], 0)).0.unwrap();
    if synced {
        ready(file.sync()).unwrap();
    }
}

#[test]
fn power_cuts_take_what_was_not_synced() {
    met(|disk| written(disk, true), first_of_sectors, &[vec![3, 3]]);
    let each: Vec<_> = (1..4).flat_map(|a| (1..4).map(move |b| vec![a, b])).collect();
    met(|disk| written(disk, false), first_of_sectors, &each);

    let name = |name: &str| vec![name.to_owned()];
    let renamed = |disk: &SimDisk| {
        let files = disk.folder("f");
        drop(ready(files.open("old", Open::New)).unwrap());
        ready(files.rename("old", "new")).unwrap();
    };
    met(renamed, names, &[vec![], name("new"), name("old")]);
    let synced = |disk: &SimDisk| {
        renamed(disk);
        // Another folder's sync is of no use.
        drop(ready(disk.folder("g").open("other", Open::New)).unwrap());
        ready(disk.folder("f").sync_folder()).unwrap();
    };
    met(synced, names, &[name("new")]);
    let removed = |disk: &SimDisk| {
        synced(disk);
        ready(disk.folder("f").remove("new")).unwrap();
        drop(ready(disk.folder("f").open("later", Open::New)).unwrap());
    };
    // Later changes of names may last without earlier ones.
    let both = ["later", "new"].map(str::to_owned).to_vec();
    met(removed, names, &[vec![], name("later"), both, name("new")]);
}

#[test]
fn faults_are_met_where_they_were_placed() {
    let disk = SimDisk::new(3);
    let files = disk.folder("f");
    let file = ready(files.open("a", Open::New)).unwrap();
    disk.set_room(1000);
    let full = ready(file.write_at(vec![1; 1200], 0)).0.unwrap_err();
    assert_eq!(
        (full.kind(), ready(file.size()).unwrap()),
        (ErrorKind::StorageFull, 1000)
    );
    let full = ready(file.reserve(1001)).unwrap_err();
    assert_eq!(full.kind(), ErrorKind::StorageFull);
    disk.set_room(u64::MAX);
    disk.set_read_only(true);
    let refused = ready(file.write_at(vec![1], 0)).0.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem);
    assert!(ready(files.open("b", Open::Either)).is_err() && ready(files.open("a", Open::Either)).is_ok());
    disk.set_read_only(false);
    disk.fail_at(disk.steps() + 1, Fault::Io);
    assert_eq!(ready(file.read_at(1, 0)).unwrap_err().raw_os_error(), Some(5));
    ready(file.read_at(1, 0)).unwrap();
    // What a failed sync did not write never lasts, though a later sync is content.
    let lost = (0..50).filter(|seed| {
        let disk = SimDisk::new(*seed);
        let file = ready(disk.folder("f").open("a", Open::New)).unwrap();
        ready(disk.folder("f").sync_folder()).unwrap();
        ready(file.write_at(vec![1; 512], 0)).0.unwrap();
        disk.fail_at(disk.steps() + 1, Fault::Io);
        ready(file.sync()).unwrap_err();
        ready(file.sync()).unwrap();
        ready(names_of_size(&disk.crash().folder("f"))) == 0
    });
    assert!((10..40).contains(&lost.count()));
    // After power went nothing answers.
    let dead = disk.clone();
    drop(disk.crash());
    assert!(ready(dead.folder("f").list()).is_err());
}

async fn names_of_size(files: &SimFiles) -> u64 {
    files.list().await.unwrap()[0].1
}
