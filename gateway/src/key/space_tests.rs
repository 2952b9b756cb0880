//! Name spaces are apart, and a secret is made once and never out of a doubtful file.

use std::{collections::HashSet, fs, os::unix::fs::PermissionsExt};

use super::*;

#[test]
fn each_tenant_scope_and_key_has_its_own() {
    let one = Secret::new([1; LEN]);
    let other = Secret::new([2; LEN]);
    let mut seen = HashSet::new();
    for secret in [&one, &other] {
        for tenant in ["", "a", "ab", "b", "org_1", "org_12345"] {
            assert!(seen.insert(Namespace::new(secret, Scope::Tenant, tenant, b"k").0));
            for key in [&b""[..], b"b", b"k", b"2345"] {
                assert!(seen.insert(Namespace::new(secret, Scope::Key, tenant, key).0));
            }
        }
        assert!(seen.insert(Namespace::new(secret, Scope::Public, "a", b"k").0));
    }
    let of = |scope, tenant, key| Namespace::new(&one, scope, tenant, key);
    assert_eq!(of(Scope::Public, "a", b"k"), of(Scope::Public, "b", b"l"));
    assert_eq!(of(Scope::Tenant, "a", b"k"), of(Scope::Tenant, "a", b"l"));
    assert!(!format!("{one:?}").contains('1'));
}

/// An empty folder that ends with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("zerohop-secret-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    fn put(&self, bytes: &[u8], mode: u32) {
        let path = self.0.join(FILE);
        fs::write(&path, bytes).expect("a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("permissions");
    }

    fn open(&self, fresh: u8) -> Result<Secret, String> {
        Secret::of_folder(&self.0, [fresh; LEN]).map_err(|error| {
            let text = error.to_string();
            text.replace(&self.0.display().to_string(), "FOLDER")
        })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _gone = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_secret_is_made_once() {
    let folder = Folder::new("once");
    assert_eq!(folder.open(1), Ok(Secret::new([1; LEN])));
    assert_eq!(folder.open(2), Ok(Secret::new([1; LEN])), "the one that is there");
    let names: Vec<_> = fs::read_dir(&folder.0)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    assert_eq!(names, [FILE], "nothing half-made stays");
    let mode = fs::metadata(folder.0.join(FILE)).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn of_many_who_make_it_all_have_the_first() {
    let folder = Folder::new("race");
    let found: Vec<Secret> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|n| {
                let path = &folder.0;
                scope.spawn(move || {
                    // As another process would, under another name: the half-made file carries the process's number.
                    let fresh = Secret::new([n; LEN]);
                    let own = path.join(format!("of-{n}"));
                    fs::create_dir_all(&own).expect("a folder");
                    match fresh.write(&own, &path.join(FILE)) {
                        Ok(()) => fresh,
                        Err(error) => {
                            assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
                            Secret::read(&path.join(FILE)).expect("whole")
                        }
                    }
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"))
            .collect()
    });
    assert!(found.iter().all(|secret| *secret == found[0]));
}

#[test]
fn doubtful_files_are_refused() {
    let folder = Folder::new("bad");
    for (bytes, mode, wanted) in [
        (
            &[7; 31][..],
            0o600,
            "FOLDER/cache_secret: a secret has 32 bytes, this file has 31: put the right file back, or remove it together with the cache's other files",
        ),
        (
            &[][..],
            0o600,
            "FOLDER/cache_secret: a secret has 32 bytes, this file has 0: put the right file back, or remove it together with the cache's other files",
        ),
        (
            &[7; 32][..],
            0o640,
            "FOLDER/cache_secret: others may read or change it (mode 640): `chmod 600` it",
        ),
        (
            &[7; 32][..],
            0o602,
            "FOLDER/cache_secret: others may read or change it (mode 602): `chmod 600` it",
        ),
    ] {
        folder.put(bytes, mode);
        assert_eq!(folder.open(1), Err(wanted.to_owned()));
    }
    folder.put(&[7; 32], 0o400);
    assert_eq!(folder.open(1), Ok(Secret::new([7; LEN])));
    fs::remove_file(folder.0.join(FILE)).expect("removable");
    fs::create_dir(folder.0.join(FILE)).expect("a folder in its place");
    assert_eq!(folder.open(1), Err("FOLDER/cache_secret: not an ordinary file".into()));
    let nowhere = Folder(folder.0.join("nowhere"));
    assert_eq!(
        nowhere.open(1),
        Err("FOLDER/cache_secret: No such file or directory (os error 2)".into())
    );
}
