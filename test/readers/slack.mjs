// Starts emulate's Slack and says where, until its stdin ends: node slack.mjs PORT
import { createEmulator } from 'emulate';

const slack = await createEmulator({
  service: 'slack',
  port: Number(process.argv[2]),
  seed: {
    slack: {
      channels: [{ name: 'calico-ipam', topic: 'the audit' }],
      users: [{ name: 'ipamaudit' }],
      tokens: [{ token: 'xoxb-local-test', user: 'ipamaudit', scopes: ['chat:write', 'channels:read', 'channels:history'] }],
      strict_scopes: true,
    },
  },
});
console.log(JSON.stringify({ url: slack.url }));
process.stdin.on('end', () => slack.close().then(() => process.exit(0)));
process.stdin.resume();
