//! Signatures that Oncebox makes, believed by every receiver.

use super::books::Books;
use super::delivery::Delivery;
use super::example::{Example, Language};
use super::signed::{NEW, OLD};
use crate::support::lossy::Mode;
use crate::support::wire;

pub async fn every_attempt_of_oncebox_is_signed_with_every_secret(language: Language) {
    let Some(program) = language.program() else { return };
    for known in [OLD, NEW] {
        let books = Books::open().await;
        let example = Example::start(program, &books, known);
        let endpoint = r#"signing: {secrets: ["${SIGNING_OLD}", "${SIGNING_NEW}"]}"#;
        let secrets = [("SIGNING_OLD", OLD), ("SIGNING_NEW", NEW)];
        let delivery = Delivery::start_with(example.address, endpoint, &secrets).await;
        delivery.proxy.set(Mode::Lossy);
        delivery.send(0..60);
        delivery.settled(60, 0).await;
        assert_eq!(delivery.differences(&books, 0..60).await, Vec::<String>::new());
        let requests = delivery.proxy.requests();
        assert!(requests.len() > 60, "some were sent again");
        for request in requests {
            assert_eq!(wire::header(&request, "webhook-signature").map(|text| text.split(' ').count()), Some(2));
        }
    }
}
