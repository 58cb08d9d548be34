// A user of Amazon's own client for JavaScript: what it sends, it must get back.
import assert from "node:assert/strict";
import * as sqs from "@aws-sdk/client-sqs";

const [endpoint, accessKeyId, secretAccessKey] = process.argv.slice(2);
const client = new sqs.SQSClient({
  endpoint, region: "eu-north-1", credentials: { accessKeyId, secretAccessKey }, maxAttempts: 1,
});
const call = (name, input) => client.send(new sqs[`${name}Command`](input));

const { QueueUrl } = await call("CreateQueue", {
  QueueName: "js", Attributes: { VisibilityTimeout: "60" }, tags: { from: "js" },
});
const MessageBody = "grüße \u{1F600} \"quoted\"\n";
const sent = await call("SendMessage", {
  QueueUrl, MessageBody,
  MessageAttributes: {
    text: { DataType: "String", StringValue: "value" },
    bytes: { DataType: "Binary", BinaryValue: new Uint8Array([0, 255]) },
  },
});
await call("SendMessageBatch", {
  QueueUrl,
  Entries: [
    { Id: "a", MessageBody: "second" },
    { Id: "b", MessageBody: "later", DelaySeconds: 900 },
  ],
});
const { Messages } = await call("ReceiveMessage", {
  QueueUrl, MaxNumberOfMessages: 10, WaitTimeSeconds: 20,
  MessageAttributeNames: ["All"], MessageSystemAttributeNames: ["All"],
});
assert.deepEqual(Messages.map((message) => message.Body), [MessageBody, "second"]);
assert.equal(Messages[0].MessageId, sent.MessageId);
assert.equal(Messages[0].Attributes.ApproximateReceiveCount, "1");
assert.deepEqual([...Messages[0].MessageAttributes.bytes.BinaryValue], [0, 255]);
const [first, second] = Messages.map((message) => message.ReceiptHandle);
await call("ChangeMessageVisibility", { QueueUrl, ReceiptHandle: first, VisibilityTimeout: 9 });
await call("DeleteMessage", { QueueUrl, ReceiptHandle: first });
const deleted = await call("DeleteMessageBatch", {
  QueueUrl,
  Entries: [{ Id: "a", ReceiptHandle: second }, { Id: "b", ReceiptHandle: "nonsense" }],
});
assert.deepEqual([deleted.Successful.length, deleted.Failed.length], [1, 1]);
const { Attributes } = await call("GetQueueAttributes", { QueueUrl, AttributeNames: ["All"] });
assert.equal(Attributes.ApproximateNumberOfMessagesDelayed, "1");
assert.equal(Attributes.ApproximateNumberOfMessagesNotVisible, "0");
const listed = [];
for await (const page of sqs.paginateListQueues({ client, pageSize: 1 }, {})) {
  listed.push(...page.QueueUrls);
}
assert.deepEqual(listed, [QueueUrl]);
await assert.rejects(call("GetQueueUrl", { QueueName: "absent" }), sqs.QueueDoesNotExist);
await call("PurgeQueue", { QueueUrl });
await call("DeleteQueue", { QueueUrl });
console.log("ok");
