// What TensorFlow.js itself answers: node answers.js DIRECTORY '[[...]]' -> {"name": [...], ...}
const fs = require("fs");
const path = require("path");
const tf = require("@tensorflow/tfjs");

async function main(directory, inputs) {
  const model = JSON.parse(fs.readFileSync(path.join(directory, "model.json")));
  const paths = model.weightsManifest.flatMap((group) => group.paths);
  const weights = new Uint8Array(Buffer.concat(paths.map((name) => fs.readFileSync(path.join(directory, name)))));
  const loaded = await tf.loadGraphModel({
    load: async () => ({
      ...model,
      weightSpecs: model.weightsManifest.flatMap((group) => group.weights),
      weightData: weights.buffer,
    }),
  });
  const outputs = Object.entries(model.signature.outputs);
  const answers = loaded.execute({ inputs: tf.tensor(inputs) }, outputs.map(([, tensor]) => tensor.name));
  const named = await Promise.all(outputs.map(async ([name], at) => [name, await answers[at].array()]));
  fs.writeSync(1, JSON.stringify(Object.fromEntries(named)) + "\n");
}

main(process.argv[2], JSON.parse(process.argv[3]));
