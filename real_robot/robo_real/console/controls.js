// What the person's hands do: keyboard, gamepad and pads become one dead-man switch and one action in [-1, 1].
const SWITCHES = ["ShiftLeft", "ShiftRight"];
const GAMEPAD_SWITCH = 5; // right shoulder button of the standard layout
const GAMEPAD_STOP = 1; // B
const GAMEPAD_GRIP = 0; // A
const GAMEPAD_PRESSES = { 9: "start", 12: "success", 13: "failure", 14: "discard" }; // start; cross up, down, left
const DEAD_ZONE = 0.15;
// [part of the action, sign, key, words]
export const MOVES = [
  ["dx", 1, "KeyW", "forward"], ["dx", -1, "KeyS", "back"], ["dy", 1, "KeyA", "left"], ["dy", -1, "KeyD", "right"],
  ["dz", 1, "KeyR", "up"], ["dz", -1, "KeyF", "down"], ["turn", 1, "KeyQ", "turn ⟲"], ["turn", -1, "KeyE", "turn ⟳"],
];
export const GRIP = "KeyG";

export class Controls {
  constructor(onStop, onLost, onPress = () => {}) {
    this.keys = new Set();
    this.pads = new Map(); // pointer -> move
    this.names = [];
    this.grip = 1; // open
    this.episode = null; // whose fingers the grip is of
    this.speed = 0.4;
    this.onStop = onStop;
    this.onLost = onLost;
    this.onPress = onPress; // "start", or a label
    this.buttons = [];
    this.hadPad = false;
  }

  // A key that was held when the page lost it was not let go of: that is a loss, no giving back.
  drop() {
    const held = this.read().held;
    this.keys.clear();
    this.pads.clear();
    if (held) this.onLost();
  }

  grasp() {
    this.grip = this.grip > 0 ? -1 : 1;
  }

  read() {
    const pad = this.gamepad();
    const held = SWITCHES.some((key) => this.keys.has(key)) || this.pads.size > 0 || (pad?.held ?? false);
    const action = this.names.map((name) => (name === "gripper_opening" ? this.grip : this.along(name, pad)));
    return { held, action };
  }

  along(name, pad) {
    let sum = pad?.axes[name] ?? 0;
    for (const [part, sign, key] of MOVES) if (part === name && this.keys.has(key)) sum += sign;
    for (const move of this.pads.values()) if (move && move[0] === name) sum += move[1];
    return Math.max(-1, Math.min(1, sum)) * this.speed;
  }

  gamepad() {
    const pad = [...(navigator.getGamepads?.() ?? [])].find((each) => each?.connected && each.mapping === "standard");
    if (!pad) {
      if (this.hadPad) this.onLost(); // unplugged, or its battery is empty
      this.hadPad = false;
      return null;
    }
    const pressed = pad.buttons.map((button) => button.pressed);
    if (pressed[GAMEPAD_STOP] && !this.buttons[GAMEPAD_STOP]) this.onStop();
    if (pressed[GAMEPAD_GRIP] && !this.buttons[GAMEPAD_GRIP]) this.grasp();
    for (const [button, kind] of Object.entries(GAMEPAD_PRESSES)) {
      if (pressed[button] && !this.buttons[button]) this.onPress(kind);
    }
    this.buttons = pressed;
    this.hadPad = pressed[GAMEPAD_SWITCH];
    const at = (axis) => (Math.abs(pad.axes[axis] ?? 0) < DEAD_ZONE ? 0 : pad.axes[axis]);
    const axes = { dx: -at(1), dy: -at(0), dz: -at(3), turn: -at(2) };
    return { held: pressed[GAMEPAD_SWITCH], axes };
  }
}
