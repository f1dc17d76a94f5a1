//! Authorities out of their time: an authority retires by expiring, so it must not vouch any more, on either leg.
//!
//! Each case is put to `openssl verify` too: its judgement is PostgreSQL's and libpq's.

use std::process::Command;

use rcgen::{BasicConstraints, IsCa};

use super::*;

/// Years of validity.
const PAST: [i32; 2] = [2020, 2021];
const PRESENT: [i32; 2] = [2020, 3000];
const FUTURE: [i32; 2] = [2999, 3000];

/// What openssl says of a certificate, shown with these others.
fn openssl_accepts(roots: &Pair, shown: &Pair) -> bool {
    let mut command = Command::new("openssl");
    command.args(["verify", "-no-CApath", "-no-CAstore", "-CAfile"]).arg(&roots.cert);
    let output = command.arg("-untrusted").args([&shown.cert, &shown.cert]).output().expect("openssl can be run");
    output.status.success()
}

/// Both legs judge a chain by these roots as openssl does.
async fn judged(roots: &Pair, shown: &Pair, good: bool, what: &str) {
    assert_eq!(openssl_accepts(roots, shown), good, "openssl: {what}");
    let expired = |text: String| assert!(text.contains("xpired"), "{what}: {text}");

    let seen = verdict(shown, &upstream(SslMode::VerifyCa, Some(roots))).await;
    assert_eq!(seen.is_ok(), good, "as the server's: {what}: {seen:?}");
    seen.map_or_else(expired, drop);

    let (cert, key) = (Some(shown.cert.clone()), Some(shown.key.clone()));
    let client = UpstreamTls::new(&TlsOptions { cert, key, ..options(SslMode::Require, None) }).unwrap();
    let seen = shake(&serve_with_ca(shown, roots), &client, HOST).await.0;
    assert_eq!(seen.is_ok(), good, "as the client's: {what}: {seen:?}");
    seen.map_or_else(|error| expired(error.to_string()), drop);
}

/// Certificates of both ways of judging, webpki's and ours (CA:TRUE, version 1), signed by one authority.
fn leaves(shop: &Workshop, by: &Pair, name: &str) -> [Pair; 3] {
    let mut calls_itself_ca = workshop::leaf("server", &[HOST]);
    calls_itself_ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    [
        shop.leaf(&format!("plain-{name}"), &[HOST], by),
        shop.made(&format!("ca-{name}"), &calls_itself_ca, Some(by)),
        shop.manual_leaf(&format!("v1-{name}"), HOST, name),
    ]
}

#[tokio::test]
async fn an_authority_vouches_in_its_time() {
    let shop = Workshop::open();
    let ca = shop.authority("ca", None);
    let [past, present, future] =
        [("past", PAST), ("present", PRESENT), ("future", FUTURE)].map(|(name, years)| shop.renewed(name, &ca, years));
    let renewed = shop.chain("renewed", &[&past, &present]);
    let other_way = shop.chain("other_way", &[&present, &past]);
    for leaf in leaves(&shop, &ca, "ca") {
        judged(&past, &leaf, false, "past").await;
        judged(&future, &leaf, false, "future").await;
        judged(&present, &leaf, true, "present").await;
        // The same name and key, made again when the time was over.
        judged(&renewed, &leaf, true, "past and present").await;
        judged(&other_way, &leaf, true, "present and past").await;
    }
}

/// Certificates of a good authority, which anyone may have seen, are no help to one that has expired.
#[tokio::test]
async fn nobody_elses_authority_vouches() {
    let shop = Workshop::open();
    let (ca, other) = (shop.authority("ca", None), shop.authority("other", None));
    let past = shop.renewed("past", &ca, PAST);
    let roots = shop.chain("roots", &[&past, &other]);
    let strangers = leaves(&shop, &other, "other");
    for leaf in leaves(&shop, &ca, "ca") {
        judged(&roots, &leaf, false, "alone").await;
        let shown = shop.chain("shown", &[&leaf, &strangers[0], &strangers[1], &strangers[2], &other]);
        judged(&roots, &shown, false, "with a stranger's").await;
    }
    for leaf in strangers {
        judged(&roots, &leaf, true, "of the good one").await;
    }
}

#[tokio::test]
async fn an_intermediate_authority_is_no_better_than_its_root() {
    let shop = Workshop::open();
    let ca = shop.authority("ca", None);
    let mid = shop.authority("mid", Some(&ca));
    let (past, present) = (shop.renewed("past", &ca, PAST), shop.renewed("present", &ca, PRESENT));
    let [with_past, with_present, with_both] =
        [("a", vec![&past]), ("b", vec![&present]), ("c", vec![&past, &present])].map(|(name, roots)| {
            let roots: Vec<&Pair> = std::iter::once(&mid).chain(roots).collect();
            shop.chain(name, &roots)
        });
    for leaf in leaves(&shop, &mid, "mid") {
        // The intermediate one comes with the certificate, or is with the roots.
        let shown = shop.chain("shown", &[&leaf, &mid]);
        judged(&past, &shown, false, "past").await;
        judged(&present, &shown, true, "present").await;
        for shown in [&leaf, &shown] {
            judged(&with_past, shown, false, "with past").await;
            judged(&with_present, shown, true, "with present").await;
            judged(&with_both, shown, true, "with both").await;
        }
    }
}

#[tokio::test]
async fn a_root_that_is_the_certificate_itself() {
    let shop = Workshop::open();
    for (name, mut params) in [("ca", workshop::authority(HOST)), ("not_ca", workshop::leaf(HOST, &[]))] {
        let present = shop.made(name, &params, None);
        judged(&present, &present, true, name).await;
        params.not_after = rcgen::date_time_ymd(2020, 1, 1);
        let past = shop.made(name, &params, None);
        judged(&past, &past, false, name).await;
    }
    // Signed by a root that has expired, and configured together with it.
    let ca = shop.authority("authority", None);
    let past = shop.renewed("past", &ca, PAST);
    for leaf in leaves(&shop, &ca, "authority") {
        judged(&shop.chain("roots", &[&leaf, &past]), &leaf, false, "with its root").await;
    }
}
