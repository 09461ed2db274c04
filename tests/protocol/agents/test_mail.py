from gateway.protocol.agents.mail import Mail, MailKind, read_mail

MAIL = Mail(kind=MailKind.NEW_TASK, author="/root", recipient="/root/alpha", payload="Look.\nTwice.")


def test_a_model_reads_kind_recipient_and_sender_before_the_text():
    assert MAIL.show() == ("Message Type: NEW_TASK\nTask name: /root/alpha\nSender: /root\nPayload:\nLook.\nTwice.")


def test_mail_is_an_item_and_an_item_is_mail():
    assert MAIL.to_item() == {
        "type": "agent_message",
        "kind": "NEW_TASK",
        "author": "/root",
        "recipient": "/root/alpha",
        "payload": "Look.\nTwice.",
    }
    assert read_mail(MAIL.to_item()) == MAIL
